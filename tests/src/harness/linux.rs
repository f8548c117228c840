//! A machine with a Linux kernel for instances of tier `linux`: Debian's kernel, and a file system that is a bridge.

use super::command::{must, run_command};
use nfluid_testbed::program::find_built;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folder of the kernel within that of all build results; `cargo xtask test` and `cargo xtask guest` unpack it.
const KERNEL: &str = "guest/6.1";
/// Modules of a bridge between two interfaces, in the order in which they are loaded.
const MODULES: [&str; 9] = [
    "virtio/virtio_ring",
    "virtio/virtio",
    "virtio/virtio_mmio",
    "core/failover",
    "net/net_failover",
    "net/virtio_net",
    "llc/llc",
    "802/stp",
    "bridge/bridge",
];
const INIT: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
for module in $(cat /modules/order); do insmod /modules/$module.ko; done
ip link add bridge type bridge
for port in eth0 eth1; do ip link set $port master bridge up; done
ip link set bridge up
echo the bridge is up
while :; do sleep 1000; done
";

/// A machine's files.
pub struct LinuxFiles {
    /// The kernel.
    pub kernel: PathBuf,
    /// The initial file system.
    pub initrd: PathBuf,
}

impl LinuxFiles {
    /// Makes the files in a folder; `None`: this host has no kernel for that.
    ///
    /// # Panics
    /// If a file cannot be made.
    pub fn bridge(folder: &Path) -> Option<Self> {
        let built = find_built("nfluidd")?;
        let from = built.parent()?.parent()?.join(KERNEL);
        let busybox = Path::new("/usr/bin/busybox");
        if !from.join("vmlinuz").is_file() || !busybox.is_file() {
            return None;
        }
        let root = folder.join("root");
        for directory in ["bin", "proc", "modules"] {
            fs::create_dir_all(root.join(directory)).expect("a directory");
        }
        fs::copy(busybox, root.join("bin/busybox")).expect("busybox");
        let modules = from.join("modules");
        for module in MODULES {
            let name = format!("*/{module}.ko");
            let found = must(&format!("find {} -path {name}", modules.display()));
            let found = found
                .lines()
                .next()
                .unwrap_or_else(|| panic!("no module {module}"));
            fs::copy(
                found,
                root.join("modules")
                    .join(file_name(module))
                    .with_extension("ko"),
            )
            .expect("a module");
        }
        let order: Vec<_> = MODULES.map(file_name).to_vec();
        fs::write(root.join("modules/order"), order.join(" ")).expect("written");
        let init = root.join("init");
        fs::write(&init, INIT).expect("written");
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).expect("executable");
        let files = LinuxFiles {
            kernel: folder.join("vmlinuz"),
            initrd: folder.join("initrd"),
        };
        fs::copy(from.join("vmlinuz"), &files.kernel).expect("the kernel");
        let archive = format!(
            "find . | busybox cpio -o -H newc > {}",
            files.initrd.display()
        );
        let made = run_command(Command::new("sh").args(["-c", &archive]).current_dir(&root));
        assert!(made.succeeded(), "{made:?}");
        Some(files)
    }
}

fn file_name(module: &'static str) -> &'static str {
    module.rsplit('/').next().unwrap_or(module)
}
