//! Users of an image, by name or number (passwd(5), group(5)).

/// A user as an image or an operator names it: `USER` or `USER:GROUP`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    user: String,
    group: Option<String>,
}

/// The numbers of a user, and its home directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The number of the user.
    pub user: u32,
    /// The number of the group.
    pub group: u32,
    /// The home directory; `None`: the image does not know the user.
    pub home: Option<String>,
}

/// The image has no such user or group.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the image has no {kind} '{name}': its /etc/{file} does not name it")]
pub struct NoUser {
    kind: &'static str,
    name: String,
    file: &'static str,
}

impl User {
    /// Splits `USER:GROUP`. Nothing is root.
    pub fn parse(text: &str) -> Self {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group.to_owned())),
            None => (text, None),
        };
        let user = if user.is_empty() { "0" } else { user };
        User {
            user: user.to_owned(),
            group: group.filter(|group| !group.is_empty()),
        }
    }

    /// Looks the numbers up in the image's `/etc/passwd` and `/etc/group`. A number needs no entry.
    ///
    /// # Errors
    /// A name has none.
    pub fn find(&self, passwd: &str, group: &str) -> Result<Ids, NoUser> {
        let number = self.user.parse::<u32>().ok();
        let mut entries = passwd
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>());
        let entry = entries.find_map(|fields| {
            let (own_number, own_group) = (field(&fields, 2)?, field(&fields, 3)?);
            let is_it = match number {
                Some(number) => number == own_number,
                None => fields.first() == Some(&self.user.as_str()),
            };
            let home = fields.get(5).map(|home| (*home).to_owned());
            is_it.then_some((own_number, own_group, home))
        });
        let (user, own_group, home) = match (entry, number) {
            (Some((user, group, home)), _) => (user, group, home),
            (None, Some(number)) => (number, 0, None),
            (None, None) => return Err(no("user", &self.user, "passwd")),
        };
        let group = match &self.group {
            None => own_group,
            Some(named) => match named.parse() {
                Ok(number) => number,
                Err(_) => group_number(named, group).ok_or_else(|| no("group", named, "group"))?,
            },
        };
        Ok(Ids {
            user,
            group,
            home: home.filter(|home| home.starts_with('/')),
        })
    }
}

fn group_number(name: &str, group: &str) -> Option<u32> {
    let mut entries = group
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    entries.find_map(|fields| {
        (fields.first() == Some(&name))
            .then(|| field(&fields, 2))
            .flatten()
    })
}

fn field(fields: &[&str], index: usize) -> Option<u32> {
    fields.get(index)?.parse().ok()
}

fn no(kind: &'static str, name: &str, file: &'static str) -> NoUser {
    let name = name.escape_debug().to_string();
    NoUser { kind, name, file }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/sh\nbroken\nweb:x:101:102::/var/web:/bin/false\n";
    const GROUP: &str = "root:x:0:\nweb:x:102:\nlog:x:7:web\n";

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let find = |text| {
            let ids = User::parse(text).find(PASSWD, GROUP)?;
            Ok::<_, NoUser>((ids.user, ids.group, ids.home.unwrap_or_default()))
        };
        let at = |user, group, home: &str| Ok((user, group, home.to_owned()));
        assert_eq!(find(""), at(0, 0, "/root"));
        assert_eq!(find("web"), at(101, 102, "/var/web"));
        assert_eq!(find("101"), at(101, 102, "/var/web"));
        assert_eq!(find("web:log"), at(101, 7, "/var/web"));
        assert_eq!(find("5:6"), at(5, 6, ""));
        assert_eq!(find("5"), at(5, 0, ""));
        for bad in ["nobody", "web:none", "99999999999", "-1"] {
            find(bad).expect_err(bad);
        }
    }
}
