//! Life of an instance: creation, memory, save and restore, upgrade, restart.

mod chain_change;
pub mod creation;
mod creation_peers;
mod density;
mod fleet;
mod footprint;
mod images;
mod kubernetes;
pub mod life;
mod nomad;
mod nova;
mod openvim;
mod orchestrated;
mod restart;

use crate::experiment::{Experiment, Topic};
use crate::needs::{CONTAINERS, ENGINES, NETNS, NGINX, NOTHING, Needs, OPENSSL};

/// The experiments of this topic.
pub const TOPIC: Topic = Topic {
    title: "Life of an instance",
    experiments: &[
        Experiment {
            name: "creation",
            aliases: &["l2"],
            summary: "create -> first packet forwarded, by number of instances; fork+exec, unshare, bwrap, crun, runc",
            needs: Needs {
                required: &[],
                compared: &[CONTAINERS],
            },
            run: creation::run,
        },
        Experiment {
            name: "creation-peers",
            aliases: &["l2peers"],
            summary: "an instance from the pool, fork+exec, unshare, bwrap, crun, runc in turn, beside 0 and 1000 instances",
            needs: Needs {
                required: &[],
                compared: &[CONTAINERS],
            },
            run: creation_peers::run,
        },
        Experiment {
            name: "density",
            aliases: &["l6"],
            summary: "instances alive and idle at once: how many, memory of each, CPU of all",
            needs: NOTHING,
            run: density::run,
        },
        Experiment {
            name: "footprint",
            aliases: &[],
            summary: "memory and CPU time of 1 and 100 idle instances; memory of 1 to 8000 of a platform",
            needs: NOTHING,
            run: footprint::run,
        },
        Experiment {
            name: "images",
            aliases: &["oci"],
            summary: "nginx from a container image until its first answer, beside 0 and 100 of them; crun, runc, podman",
            needs: Needs {
                required: &[NETNS, NGINX],
                compared: &[ENGINES],
            },
            run: images::run_images,
        },
        Experiment {
            name: "kubernetes",
            aliases: &["v1-k8s"],
            summary: "a pod of Kubernetes until its first frame, where the time goes, pods per second; a node that runs nothing",
            needs: Needs {
                required: &[NETNS],
                compared: &[],
            },
            run: kubernetes::run_kubernetes,
        },
        Experiment {
            name: "fleet",
            aliases: &["fleet.1000"],
            summary: "chains on 100 and 1000 simulated nodes of Kubernetes: per second, until right again after a tenth is lost, memory",
            needs: NOTHING,
            run: fleet::run,
        },
        Experiment {
            name: "nomad",
            aliases: &["v1"],
            summary: "Nomad's tasks: from the job until the first frame, by phases; tasks per second; raw_exec, mock_driver",
            needs: Needs {
                required: &[NETNS],
                compared: &[],
            },
            run: nomad::run_nomad,
        },
        Experiment {
            name: "nova",
            aliases: &["v1-nova"],
            summary: "a server of OpenStack Nova until it is ACTIVE: stock, tuned, beside Nova's fake driver",
            needs: Needs {
                required: &[NETNS],
                compared: &[],
            },
            run: nova::run_nova,
        },
        Experiment {
            name: "nova-tunings",
            aliases: &[],
            summary: "the same in clouds with one tuning each, beside a stock cloud: what each tuning gains",
            needs: Needs {
                required: &[NETNS],
                compared: &[],
            },
            run: nova::run_tunings,
        },
        Experiment {
            name: "nova-migration",
            aliases: &["v1.migrate"],
            summary: "a server that OpenStack Nova moves to another host while datagrams cross it: lost packets",
            needs: Needs {
                required: &[NETNS],
                compared: &[],
            },
            run: nova::run_migration,
        },
        Experiment {
            name: "openvim",
            aliases: &[],
            summary: "OpenVIM's interface: from the request for a server until it is active and until the first frame; servers per second",
            needs: Needs {
                required: &[NETNS],
                compared: &[],
            },
            run: openvim::run_openvim,
        },
        Experiment {
            name: "save-restore",
            aliases: &["l7"],
            summary: "save a firewall with 1000 states, and restore it as a clone",
            needs: NOTHING,
            run: life::save_restore::run,
        },
        Experiment {
            name: "migration",
            aliases: &["l7migrate"],
            summary: "move a firewall with 1000 states to another host while datagrams cross it: blocked time, lost",
            needs: Needs {
                required: &[NETNS, OPENSSL],
                compared: &[],
            },
            run: life::migration::run,
        },
        Experiment {
            name: "pause",
            aliases: &["l8"],
            summary: "pause and unpause an instance while frames pass: held, dropped, led past it",
            needs: NOTHING,
            run: life::pause::run,
        },
        Experiment {
            name: "upgrade",
            aliases: &[],
            summary: "frames lost while a firewall is upgraded in place again and again",
            needs: NOTHING,
            run: life::upgrade::run,
        },
        Experiment {
            name: "scaleout",
            aliases: &[],
            summary: "a firewall becomes 2, 4 and again 1 while frames pass: lost, overtaken, for how long they wait; throughput of so many",
            needs: NOTHING,
            run: life::scaleout::run,
        },
        Experiment {
            name: "chain-change",
            aliases: &["chain.move"],
            summary: "a network function of a chain is inserted, removed, replaced, moved to another host: lost packets",
            needs: Needs {
                required: &[NETNS],
                compared: &[],
            },
            run: chain_change::run,
        },
        Experiment {
            name: "restart",
            aliases: &[],
            summary: "a firewall that is killed, restarted or replaced under traffic: lost packets, gap",
            needs: Needs {
                required: &[NETNS],
                compared: &[],
            },
            run: restart::run,
        },
    ],
};
