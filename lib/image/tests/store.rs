//! Images from every place that they come from, and hostile ones. Needs root: layers have owners, and whiteouts are devices.

use flate2::Compression;
use flate2::write::GzEncoder;
use nfluid_image::{Image, ImageError, Reference, Store, User};
use nfluid_testbed::image::{Layer, Layout};
use serde_json::json;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use tar::EntryType;
use tempfile::TempDir;

struct Place {
    folder: TempDir,
    store: Store,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::new(folder.path().join("store"));
        Place { folder, store }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn reference(&self, format: &str, name: &str) -> Reference {
        Reference::parse(&format!("{format}:{}", self.path(name).display())).expect("a name")
    }

    /// Writes an image of plain layers and imports it.
    fn import(&self, layers: &[Vec<u8>]) -> Result<nfluid_image::Imported, ImageError> {
        let folder = self.path("oci");
        let _ = fs::remove_dir_all(&folder);
        let layout = Layout::new(&folder, json!({}));
        layout.write_plain(layers).expect("written");
        self.store.import(&self.reference("oci", "oci"))
    }

    fn used(&self) -> Image {
        self.store
            .use_image(&self.reference("oci", "oci"))
            .expect("an image")
    }

    /// The files of the store, but for its locks.
    fn left(&self) -> Vec<PathBuf> {
        let folders = ["layers", "images"].map(|name| self.path("store").join(name));
        let entries = folders
            .iter()
            .flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
        let paths = entries.flatten().map(|entry| entry.path());
        paths
            .filter(|path| path.extension().is_none_or(|ending| ending != "lock"))
            .collect()
    }
}

fn layer(files: &[(&str, &str)]) -> Vec<u8> {
    let mut layer = Layer::default();
    for (path, content) in files {
        layer
            .file(path, 0o644, (0, 0), content.as_bytes())
            .expect("an entry");
    }
    layer.finish().expect("a layer")
}

fn of(entries: &[(EntryType, &str, u32, &str)]) -> Vec<u8> {
    let mut layer = Layer::default();
    for (kind, path, mode, target) in entries {
        layer
            .entry(*kind, path, *mode, (5, 6), target, b"")
            .expect("an entry");
    }
    layer.finish().expect("a layer")
}

fn refused(result: Result<nfluid_image::Imported, ImageError>) -> String {
    result.expect_err("it is refused").to_string()
}

// promise: 20.1
#[test]
fn an_image_is_the_same_wherever_it_comes_from_and_its_layers_are_there_once() {
    let place = Place::new();
    let folder = place.path("oci");
    let (plain, zipped) = (layer(&[("a", "1")]), layer(&[("b", "2")]));
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&zipped).expect("compressed");
    let gzip = gzip.finish().expect("compressed");
    let third = layer(&[(
        "etc/passwd",
        "root:x:0:0::/root:/bin/sh\nweb:x:7:8::/srv:\n",
    )]);
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let mut zstd = ruzstd::encoding::compress_to_vec(&third[..700], level);
    // Frames to be passed over, and a second frame: as zstd:chunked has them.
    zstd.extend([0x5e, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
    zstd.extend(ruzstd::encoding::compress_to_vec(&third[700..], level));
    let mut layout = Layout::new(
        &folder,
        json!({ "Entrypoint": ["/a"], "Cmd": ["b"], "Env": ["A=1"], "User": "web", "WorkingDir": "/w", "StopSignal": "SIGINT" }),
    );
    layout.tag = Some("1.2");
    let id = layout
        .write(&[
            (&plain, &plain, "tar"),
            (&zipped, &gzip, "tar+gzip"),
            (&third, &zstd, "tar+zstd"),
        ])
        .expect("written");
    let imported = place
        .store
        .import(&place.reference("oci", "oci:1.2"))
        .expect("imported");
    assert_eq!((imported.record.id(), imported.new_layers), (id.clone(), 3));
    let settings = &imported.record.settings;
    assert_eq!(
        (&settings.entrypoint[..], &settings.command[..]),
        (&["/a".to_owned()][..], &["b".to_owned()][..])
    );
    assert_eq!(
        (
            settings.user.as_str(),
            settings.directory.as_str(),
            settings.stop_signal.as_str()
        ),
        ("web", "/w", "SIGINT")
    );

    // The same in a tar file, and as Docker has it.
    let tar = |name: &str, from: &Path| {
        let mut builder = tar::Builder::new(fs::File::create(place.path(name)).expect("a file"));
        builder.append_dir_all(".", from).expect("added");
        builder.finish().expect("written");
    };
    tar("oci.tar", &folder);
    let docker = place.path("docker");
    fs::create_dir_all(&docker).expect("a folder");
    let config = format!("{}.json", id.trim_start_matches("sha256:"));
    fs::copy(
        folder.join("blobs").join(id.replace(':', "/")),
        docker.join(&config),
    )
    .expect("copied");
    for (name, content) in [("1.tar", &plain), ("2.tar", &zipped), ("3.tar", &third)] {
        fs::write(docker.join(name), content).expect("written");
    }
    std::os::unix::fs::symlink("2.tar", docker.join("link.tar")).expect("a link");
    let manifest = json!([{ "Config": config, "RepoTags": ["docker.io/library/web:1.2"], "Layers": ["1.tar", "link.tar", "3.tar"] }]);
    fs::write(docker.join("manifest.json"), manifest.to_string()).expect("written");
    tar("docker.tar", &docker);
    for (format, name) in [
        ("oci-archive", "oci.tar:1.2"),
        ("docker-archive", "docker.tar:web:1.2"),
        ("docker-archive", "docker.tar"),
    ] {
        let again = place
            .store
            .import(&place.reference(format, name))
            .expect("imported");
        assert_eq!(
            (again.record.id(), again.new_layers),
            (id.clone(), 0),
            "{format}:{name}"
        );
    }
    let all = place.store.list().expect("listed");
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].names.len(), 4);
    assert_eq!(place.left().len(), 4);

    // What an instance is given.
    fs::remove_dir_all(&folder).expect("removed");
    let image = place
        .store
        .use_image(&place.reference("oci", "oci:1.2"))
        .expect("it is here");
    assert_eq!(
        fs::read_to_string(image.layers[1].join("b")).expect("a file"),
        "2"
    );
    let ids = User::parse("web")
        .find(&image.read(Path::new("etc/passwd")), "")
        .expect("a user");
    assert_eq!((ids.user, ids.group), (7, 8));

    // It stays as long as an instance has it.
    assert_eq!(place.store.prune().expect("pruned").images.len(), 0);
    assert_eq!(
        place.store.inspect(&id[7..15]).expect("it is there").id(),
        id
    );
    drop(image);
    assert_eq!(place.store.prune().expect("pruned").images, [id]);
    assert_eq!(place.left(), [] as [PathBuf; 0]);
    let gone = place
        .store
        .inspect("oci:/none")
        .expect_err("it is gone")
        .to_string();
    assert!(gone.contains("nfluid image list"), "{gone}");
}

// promise: 20.2
#[test]
fn whiteouts_links_and_owners_are_those_of_the_layers() {
    let place = Place::new();
    let mut lower = Layer::default();
    lower
        .entry(EntryType::Directory, "own/", 0o1750, (7, 8), "", b"")
        .expect("an entry");
    lower
        .file("own/file", 0o640, (7, 8), b"text")
        .expect("an entry");
    lower
        .entry(EntryType::Link, "own/hard", 0, (0, 0), "own/file", b"")
        .expect("an entry");
    lower
        .entry(
            EntryType::Symlink,
            "far",
            0o777,
            (7, 8),
            "/etc/../../../x",
            b"",
        )
        .expect("an entry");
    lower
        .entry(EntryType::Fifo, "pipe", 0o600, (0, 0), "", b"")
        .expect("an entry");
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(120));
    lower
        .entry(
            EntryType::GNULongName,
            "././@LongLink",
            0,
            (0, 0),
            "",
            long.as_bytes(),
        )
        .expect("an entry");
    lower
        .file("short", 0o600, (0, 0), b"long")
        .expect("an entry");
    let pax = b"20 path=pax/name/of\n18 uid=1000000000\n";
    lower
        .entry(EntryType::XHeader, "x", 0, (0, 0), "", pax)
        .expect("an entry");
    lower
        .file("short", 0o600, (0, 0), b"pax")
        .expect("an entry");
    let upper = of(&[
        (EntryType::Regular, "own/.wh.file", 0o644, ""),
        (EntryType::Regular, "opaque/.wh..wh..opq", 0o644, ""),
        (EntryType::Regular, ".wh..wh.plnk", 0o644, ""),
    ]);
    place
        .import(&[lower.finish().expect("a layer"), upper])
        .expect("imported");
    let image = place.used();
    let [lower, upper] = &image.layers[..] else {
        panic!("{image:?}")
    };
    let look = |path: &str| fs::symlink_metadata(lower.join(path)).expect("it is there");
    let owner = |path: &str| {
        (
            look(path).uid(),
            look(path).gid(),
            look(path).mode() & 0o7777,
        )
    };
    assert_eq!(owner("own"), (7, 8, 0o1750));
    assert_eq!(owner("own/file"), (7, 8, 0o640));
    assert_eq!(look("own/file").ino(), look("own/hard").ino());
    assert_eq!((look("far").uid(), look("far").gid()), (7, 8));
    assert_eq!(
        fs::read_link(lower.join("far")).expect("a link"),
        Path::new("/etc/../../../x")
    );
    assert!(look("pipe").file_type().is_fifo());
    assert_eq!(
        fs::read_to_string(lower.join(&long)).expect("a file"),
        "long"
    );
    assert_eq!(
        fs::read_to_string(lower.join("pax/name/of")).expect("a file"),
        "pax"
    );
    assert_eq!(owner("pax/name/of").0, 1_000_000_000);
    let hidden = fs::symlink_metadata(upper.join("own/file")).expect("a whiteout");
    assert!(hidden.file_type().is_char_device() && hidden.rdev() == 0);
    let mut value = [0; 4];
    let length = rustix::fs::getxattr(upper.join("opaque"), "trusted.overlay.opaque", &mut value)
        .expect("opaque");
    assert_eq!(&value[..length], b"y");
    assert_eq!(fs::read_dir(upper).expect("a folder").count(), 2);
}

// promise: 20.2
#[test]
fn devices_and_setuid_bits_are_left_out_and_counted() {
    let place = Place::new();
    let imported = place.import(&[of(&[
        (EntryType::Char, "dev/mem", 0o666, ""),
        (EntryType::Block, "dev/sda", 0o666, ""),
        (EntryType::Regular, "su", 0o6755, ""),
    ])]);
    let left_out = imported.expect("imported").record.left_out;
    assert_eq!((left_out.devices, left_out.setuid), (2, 1));
    let lower = place.used().layers.remove(0);
    assert!(!lower.join("dev").exists());
    assert_eq!(
        fs::metadata(lower.join("su")).expect("a file").mode() & 0o7777,
        0o755
    );
}

// Catches: a path that is followed through a link of the layer itself, out of the layer.
// promise: 20.2
#[test]
fn nothing_outside_of_a_layer_is_reached() {
    let place = Place::new();
    let outside = place.path("outside");
    fs::create_dir(&outside).expect("a folder");
    fs::write(outside.join("secret"), "secret").expect("written");
    let (folder, secret) = (
        outside.display().to_string(),
        outside.join("secret").display().to_string(),
    );
    for (kind, path, target) in [
        (EntryType::Regular, "../x", ""),
        (EntryType::Regular, "a/../../x", ""),
        (EntryType::Directory, "a/..", ""),
        (EntryType::Link, "hard", "../outside/secret"),
        (EntryType::Link, "hard", secret.as_str()),
        (EntryType::Symlink, "", "x"),
        (EntryType::GNUSparse, "sparse", ""),
    ] {
        let why = refused(place.import(&[of(&[(kind, path, 0o644, target)])]));
        assert!(
            why.contains("leads out")
                || why.contains("not in the layer")
                || why.contains("root")
                || why.contains("kind"),
            "{why}"
        );
        assert_eq!(place.left(), [] as [PathBuf; 0], "{kind:?} {path} {target}");
    }
    // Links to the outside, and then what goes through them.
    let through: &[&[(EntryType, &str, u32, &str)]] = &[
        &[
            (EntryType::Symlink, "out", 0o777, &folder),
            (EntryType::Regular, "out/made", 0o644, ""),
        ],
        &[
            (
                EntryType::Symlink,
                "out",
                0o777,
                "../../../../../../../../..",
            ),
            (EntryType::Regular, "out/nfluid-made", 0o644, ""),
        ],
        &[
            (EntryType::Symlink, "out", 0o777, &secret),
            (EntryType::Regular, "out", 0o644, ""),
        ],
        &[
            (EntryType::Symlink, "out", 0o777, &folder),
            (EntryType::Directory, "out", 0o700, ""),
        ],
        &[
            (EntryType::Symlink, "out", 0o777, &folder),
            (EntryType::Regular, "out/.wh.secret", 0o700, ""),
        ],
        &[
            (EntryType::Symlink, "out", 0o777, &folder),
            (EntryType::Regular, "out/.wh..wh..opq", 0o700, ""),
        ],
        &[
            (EntryType::Symlink, "out", 0o777, &secret),
            (EntryType::Link, "hard", 0o700, "out"),
        ],
        &[
            (EntryType::Symlink, "out", 0o777, "/proc/self/root"),
            (EntryType::Regular, "out/nfluid-made", 0o644, ""),
        ],
    ];
    for entries in through {
        // Some are refused, and others stay within the layer.
        let _ = place.import(&[of(entries)]);
        assert_eq!(
            fs::read_dir(&outside).expect("a folder").count(),
            1,
            "{entries:?}"
        );
        assert_eq!(
            fs::read_to_string(outside.join("secret")).expect("a file"),
            "secret"
        );
        let mode = fs::metadata(&outside)
            .expect("a folder")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o755, "{entries:?}");
        assert!(!Path::new("/nfluid-made").exists());
    }
}

// promise: 20.3
#[test]
fn what_is_not_what_it_says_is_refused_and_nothing_is_left() {
    let place = Place::new();
    let folder = place.path("oci");
    let good = layer(&[("a", "some text"), ("b", "more text")]);
    let name = place.reference("oci", "oci");
    let damaged = |change: &dyn Fn(&mut Vec<u8>)| {
        let _ = fs::remove_dir_all(&folder);
        let mut blob = good.clone();
        change(&mut blob);
        Layout::new(&folder, json!({}))
            .write(&[(&good, &blob, "tar")])
            .expect("written");
        let why = refused(place.store.import(&name));
        assert_eq!(place.left(), [] as [PathBuf; 0]);
        why
    };
    // The blob has the digest that the manifest says, and not the content that the configuration says.
    assert!(damaged(&|blob| blob[512] ^= 1).contains("digest"));
    let truncated = damaged(&|blob| blob.truncate(700));
    assert!(truncated.contains("cut off"), "{truncated}");
    let nonsense = damaged(&|blob| blob.fill(7));
    assert!(nonsense.contains("no tar file"), "{nonsense}");
    let zipped = damaged(&|blob| blob.splice(.., [0x1f, 0x8b, 8, 0, 1, 2, 3]).for_each(drop));
    assert!(zipped.contains("layer"), "{zipped}");

    // Blobs that are not those of their digests.
    let written = |layout: &Layout<'_>| {
        let _ = fs::remove_dir_all(&folder);
        layout
            .write_plain(std::slice::from_ref(&good))
            .expect("written")
    };
    let id = written(&Layout::new(&folder, json!({})));
    for path in walk(&folder.join("blobs")) {
        let content = fs::read(&path).expect("a blob");
        for changed in [
            [&content[..], b" "].concat(),
            content[..content.len() - 1].to_vec(),
        ] {
            fs::write(&path, changed).expect("written");
            let why = refused(place.store.import(&name));
            assert!(why.contains("digest"), "{}: {why}", path.display());
        }
        fs::remove_file(&path).expect("removed");
        assert!(refused(place.store.import(&name)).contains("No such file"));
        fs::write(&path, content).expect("written");
    }
    assert_eq!(place.left(), [] as [PathBuf; 0]);

    // Another machine, no such name, no image at all, compressed as a whole.
    let mut layout = Layout::new(&folder, json!({}));
    layout.architecture = "s390x";
    written(&layout);
    let why = refused(place.store.import(&name));
    assert!(
        why.contains("linux/s390x") && why.contains("--override-arch"),
        "{why}"
    );
    let mut layout = Layout::new(&folder, json!({}));
    layout.tag = Some("1.0");
    assert_eq!(written(&layout), id);
    let why = refused(place.store.import(&place.reference("oci", "oci:2.0")));
    assert!(why.contains("1.0"), "{why}");
    assert!(refused(place.store.import(&place.reference("oci", "none"))).contains("none"));
    fs::write(place.path("zipped.tar"), [0x1f, 0x8b, 8, 0]).expect("written");
    let why = refused(
        place
            .store
            .import(&place.reference("oci-archive", "zipped.tar")),
    );
    assert!(why.contains("gunzip"), "{why}");
    assert_eq!(place.left(), [] as [PathBuf; 0]);
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .expect("a folder")
        .flatten()
        .map(|entry| entry.path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                walk(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

// Catches: an extension header, a header or a stream that is read into memory as long as it says it is.
// promise: 20.3
#[test]
fn a_bomb_takes_neither_memory_nor_the_disk() {
    let place = Place::new();
    let folder = place.path("oci");
    let import = |tar: &[u8]| {
        let _ = fs::remove_dir_all(&folder);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(tar).expect("compressed");
        let gzip = gzip.finish().expect("compressed");
        Layout::new(&folder, json!({}))
            .write(&[(tar, &gzip, "tar+gzip")])
            .expect("written");
        refused(place.store.import(&place.reference("oci", "oci")))
    };
    for (kind, size) in [
        (EntryType::GNULongName, 1 << 40),
        (EntryType::GNULongName, 2 << 20),
        (EntryType::XHeader, 2 << 20),
        (EntryType::XHeader, 1 << 40),
        (EntryType::XGlobalHeader, u64::MAX),
        (EntryType::Regular, u64::MAX),
        (EntryType::Regular, 1 << 50),
        (EntryType::Directory, u64::MAX),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_path("name").expect("a name");
        header.set_size(size);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_cksum();
        let content = vec![b'a'; usize::try_from(size).unwrap_or(0).min(3 << 20)];
        let why = import(&[header.as_bytes(), &content[..]].concat());
        assert!(
            why.contains("1 MiB")
                || why.contains("room")
                || why.contains("cut off")
                || why.contains("tar file")
                || why.contains("size"),
            "{kind:?}: {why}"
        );
        assert_eq!(place.left(), [] as [PathBuf; 0]);
    }
}

// Catches: a lock that a lookup waits for while an image is unpacked; a prune that takes a layer away from a lookup.
// promise: 20.4
#[test]
fn images_are_used_imported_and_pruned_at_once() {
    let place = Place::new();
    let folder = place.path("oci");
    Layout::new(&folder, json!({}))
        .write_plain(&[layer(&[("a", "text")])])
        .expect("written");
    let name = place.reference("oci", "oci");
    let left = AtomicU32::new(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let _one_less = OneLess(&left);
                for _ in 0..300 {
                    let image = place.store.use_image(&name).expect("an image");
                    let text = fs::read_to_string(image.layers[0].join("a"));
                    assert_eq!(text.expect("a file of an image in use"), "text");
                }
            });
        }
        scope.spawn(|| {
            while left.load(Ordering::Relaxed) > 0 {
                place.store.prune().expect("pruned");
                place.store.import(&name).expect("imported");
                place.store.list().expect("listed");
            }
        });
    });
}

/// Counts a thread that has ended, in whatever way.
struct OneLess<'a>(&'a AtomicU32);

impl Drop for OneLess<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
