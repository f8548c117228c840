//! The numbers of instances: ports, pools, kernel users.

use nfluid_switch::numbers::Ids;

/// The numbers that are in use.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// Ports of the platform.
    pub ports: Ids,
    /// Pools of frame slots.
    pub pools: Ids,
    /// Kernel users.
    pub users: Ids,
}

/// The numbers of one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InUse {
    /// Its first port; the others follow.
    pub first_port: u32,
    /// Number of its ports.
    pub ports: u32,
    /// Its pool.
    pub pool: u32,
    /// Its kernel user.
    pub user: u32,
}

impl Numbers {
    /// Takes numbers for an instance with `ports` ports.
    ///
    /// # Errors
    /// Too few numbers of one kind are left; no number is taken then.
    pub fn take(&self, ports: u32) -> anyhow::Result<InUse> {
        let first_port = self.ports.take(ports);
        let pool = self.pools.take(1);
        let user = self.users.take(1);
        if let (Some(first_port), Some(pool), Some(user)) = (first_port, pool, user) {
            return Ok(InUse {
                first_port,
                ports,
                pool,
                user,
            });
        }
        if let Some(first) = first_port {
            (first..first + ports).for_each(|port| self.ports.free(port));
        }
        pool.into_iter().for_each(|pool| self.pools.free(pool));
        user.into_iter().for_each(|user| self.users.free(user));
        anyhow::bail!(
            "the platform has no room for more {}; delete what is not needed",
            if first_port.is_none() {
                "ports"
            } else {
                "instances"
            }
        );
    }

    /// Marks the numbers of an instance that exists already.
    pub fn mark(&self, numbers: &InUse) {
        let ports = numbers.first_port..numbers.first_port + numbers.ports;
        ports.for_each(|port| self.ports.mark(port));
        self.pools.mark(numbers.pool);
        self.users.mark(numbers.user);
    }

    /// Frees the numbers of an instance.
    pub fn free(&self, numbers: &InUse) {
        let ports = numbers.first_port..numbers.first_port + numbers.ports;
        ports.for_each(|port| self.ports.free(port));
        self.pools.free(numbers.pool);
        self.users.free(numbers.user);
    }
}

#[cfg(test)]
mod tests {
    use super::Numbers;
    use nfluid_switch::numbers::Ids;

    // promise: 7.19
    #[test]
    fn whichever_number_is_exhausted_the_others_are_given_back() {
        let numbers = |ports: u32, pools: u32, users: u32| Numbers {
            ports: Ids::new(1, 1 + ports),
            pools: Ids::new(1, 1 + pools),
            users: Ids::new(0, users),
        };
        for scarce in [numbers(3, 9, 9), numbers(9, 1, 9), numbers(9, 9, 1)] {
            let first = scarce.take(2).expect("there is room for one");
            let refused = scarce.take(2).expect_err("there is none for two");
            assert!(refused.to_string().contains("no room"), "{refused}");
            scarce.free(&first);
            assert_eq!(scarce.take(2).expect("there is room again"), first);
        }
    }
}
