//! Programs on netmap: they see the folder of the library that stands before their C library, and reach nothing more by
//! that.

use super::*;
use nfluid_sandbox::View;
use std::fs;

// promise: 22.5
#[test]
fn a_hostile_program_on_netmap_reads_its_library_and_changes_nothing() {
    let test = "a_hostile_program_on_netmap";
    let Some(sandboxes) = Sandboxes::new(test) else {
        return;
    };
    let folder = std::env::temp_dir().join(format!("nfl-{}-{test}", std::process::id()));
    let inside = folder.join("inside");
    fs::create_dir_all(&inside).expect("a folder");
    fs::write(inside.join("library"), "code").expect("a file");
    fs::write(folder.join("beside"), "secret").expect("a file");
    let views = [View {
        of: inside,
        at: "/nfluid".into(),
        is_writable: false,
    }];
    let setup = || Setup {
        views: &views,
        ..Setup::default()
    };
    let library = "open:/nfluid/library";
    let missing = [
        "open:/nfluid/beside",
        "open:/nfluid/../beside",
        "open:/etc/passwd",
        "open:/dev/netmap",
        "open:/proc/self/mem",
    ];
    let changes = [
        "create:/nfluid/x",
        "create:/nfluid/library",
        "mkdir:/nfluid/x",
        "socket:2:1",
        "execute:/nfluid/library",
    ];
    let attempts: Vec<&str> = [library]
        .into_iter()
        .chain(missing)
        .chain(changes)
        .collect();
    let (report, ended) = sandboxes.run(&attempts, setup());
    assert!(matches!(report.of(library), Done(_)), "{report:?}");
    for attempt in missing {
        assert_eq!(report.of(attempt), Refused(libc::ENOENT), "{attempt}");
    }
    for attempt in changes {
        assert_eq!(report.of(attempt), Refused(libc::EPERM), "{attempt}");
    }
    assert_eq!(ended, Ended::Exited(0));
    // Without the filter, Landlock; without both, a view that is read-only.
    let host = ["create:/nfluid/x", "create:/nfluid/library"];
    for landlock in [true, false] {
        let setup = Setup {
            filter: false,
            landlock,
            ..setup()
        };
        let (report, _) = sandboxes.run(&host, setup);
        for attempt in host {
            let answer = report.of(attempt);
            let expected = matches!(answer, Refused(libc::EACCES | libc::EROFS | libc::EPERM));
            assert!(expected, "{attempt}: {answer:?}, Landlock: {landlock}");
        }
    }
    fs::remove_dir_all(folder).expect("removed");
}
