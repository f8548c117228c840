//! Nova and Neutron with nfluid's drivers: a whole OpenStack, two hosts, and traffic through servers whatever happens to them.

mod cloud;
mod dashboard;
mod drivers;
mod groups;
mod ovs;
mod placement;
mod server;
mod tempest;

use cloud::Cloud;

// promise: 34.1, 34.2, 34.3, 34.4, 34.8, 34.9, 34.10, 34.12
/// The three parts share one cloud, because an OpenStack takes a minute of two cores to start.
#[test]
fn servers_are_what_nova_and_neutron_say_wherever_they_are() {
    let test = "servers_are_what_nova_and_neutron_say_wherever_they_are";
    let Some(mut cloud) = Cloud::start(test) else {
        return;
    };
    server::is_what_nova_says(&mut cloud);
    placement::is_by_groups_zones_and_traits(&mut cloud);
    groups::hold_and_what_fails_leaves_nothing(&mut cloud);
}
