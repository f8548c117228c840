//! The steps of an instance's set-up, their names, and what to do when one fails.

use crate::error::Errno;

macro_rules! steps {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A step of an instance's set-up.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Step { $($(#[$doc])* $name,)* }

        impl Step {
            const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the name of the step, as a verb phrase.
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

steps! {
    /// Closing the daemon's descriptors.
    CloseDescriptors = "close inherited descriptors",
    /// Making what only the set-up can execute by.
    EmptyPath = "map a page at address 0",
    /// Leaving the daemon's session.
    Session = "start a session",
    /// Entering v1 cgroups.
    Cgroup = "enter the cgroup",
    /// Entering a shared network namespace.
    SharedNetwork = "enter the shared network namespace",
    /// Entering a shared IPC namespace.
    SharedIpc = "enter the shared IPC namespace",
    /// Entering a shared mount namespace.
    SharedMounts = "enter the shared mount namespace",
    /// Making a user namespace.
    UserNamespace = "create a user namespace",
    /// Making the others.
    Namespaces = "create namespaces",
    /// Waiting for the user map.
    UserMap = "receive the user map",
    /// Taking on the instance's user number.
    Identity = "change to the instance's user",
    /// Setting the host name.
    HostName = "set the host name",
    /// Making the mount tree private.
    PrivateMounts = "detach from the host's mounts",
    /// Mounting /proc.
    Processes = "mount the processes of the instance",
    /// Making the new root.
    MountRoot = "mount an empty root",
    /// Filling the new root.
    FillRoot = "make directories in the new root",
    /// Attaching library directories.
    AttachViews = "attach library directories",
    /// Changing into the new root.
    ChangeRoot = "change the root directory",
    /// Sealing the new root.
    SealRoot = "make the root read-only",
    /// Dropping capabilities.
    Capabilities = "drop all capabilities",
    /// No new privileges.
    NoNewPrivileges = "set no_new_privs",
    /// Waiting for the program.
    Receive = "receive the program",
    /// Placing inherited descriptors.
    PlaceDescriptors = "place inherited descriptors",
    /// Setting limits.
    Limits = "set resource limits",
    /// Applying Landlock.
    Landlock = "apply the Landlock rules",
    /// Applying the filter.
    Filter = "apply the system call filter",
    /// Entering the working directory.
    Directory = "enter the working directory",
    /// Executing.
    Execute = "execute the program",
}

impl Step {
    pub(crate) fn from_raw(raw: u8) -> Option<Self> {
        Self::ALL.get(usize::from(raw)).copied()
    }

    /// Returns the operator's remedy.
    pub(crate) fn remedy(self, errno: Errno) -> &'static str {
        match (self, errno) {
            (Self::EmptyPath, _) => "the daemon needs CAP_SYS_RAWIO",
            (Self::UserNamespace, Errno::NOSPC | Errno::USERS) => {
                "the limit of user namespaces is reached: raise sysctl user.max_user_namespaces"
            }
            (Self::UserNamespace, Errno::PERM) => {
                "user namespaces are forbidden: check sysctl user.max_user_namespaces, \
                 kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns, and that the daemon \
                 is root and not in a chroot"
            }
            (Self::UserNamespace | Self::Namespaces, Errno::INVAL) => {
                "the kernel lacks a namespace: it needs CONFIG_USER_NS, CONFIG_PID_NS, CONFIG_IPC_NS, CONFIG_UTS_NS, \
                 CONFIG_NET_NS and CONFIG_CGROUPS"
            }
            (Self::Namespaces, Errno::NOSPC) => {
                "a limit of namespaces is reached: raise sysctl user.max_net_namespaces, user.max_mnt_namespaces, \
                 user.max_ipc_namespaces, user.max_uts_namespaces and user.max_cgroup_namespaces"
            }
            (Self::SharedNetwork, _) => "the descriptor must be of a network namespace",
            (Self::Limits, Errno::PERM) => {
                "the limit is above the daemon's own hard limit: raise it in the daemon's service (LimitNOFILE, \
                 LimitMEMLOCK)"
            }
            (Self::PlaceDescriptors, Errno::MFILE | Errno::INVAL) => {
                "the daemon's own limit of descriptors (LimitNOFILE) is too low for the numbers asked for"
            }
            (Self::Execute, Errno::ACCESS) => {
                "the program must be executable by others (chmod o+x), on a file system without noexec, and its loader \
                 must be in the instance's root directory"
            }
            (Self::Execute, Errno::NOENT) => {
                "the program's loader is not in the instance's root directory: add its directory, or link the program \
                 statically"
            }
            (Self::Execute, Errno::NOMEM | Errno::AGAIN) => {
                "the instance's memory or task limit is too small for the program to start"
            }
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_survives_the_wire() {
        for step in Step::ALL {
            assert_eq!(Step::from_raw(*step as u8), Some(*step));
            assert!(!step.text().is_empty());
        }
        assert_eq!(Step::from_raw(Step::ALL.len() as u8), None);
    }
}
