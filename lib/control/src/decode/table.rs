//! Tables: mappings from names to objects of one kind.

use super::fields::{join, mapping};
use crate::model::check_name;
use crate::report::Report;
use crate::table::Table;
use crate::yaml::Node;

/// Reads a mapping from names to objects of one kind.
pub fn table<T>(
    field: Option<(&Node, String)>,
    report: &mut Report<'_>,
    read: impl FnMut(&Node, &str, &mut Report<'_>) -> T,
) -> Table<T> {
    table_of(field, report, |_| true, read)
}

/// Reads the entries of a mapping for which `is_meant` returns true.
pub fn table_of<T>(
    field: Option<(&Node, String)>,
    report: &mut Report<'_>,
    is_meant: impl Fn(&Node) -> bool,
    mut read: impl FnMut(&Node, &str, &mut Report<'_>) -> T,
) -> Table<T> {
    let mut table = Table::new();
    let Some((node, path)) = field else {
        return table;
    };
    let entries = mapping(node, &path, report).unwrap_or(&[]);
    for entry in entries.iter().filter(|entry| is_meant(&entry.value)) {
        let path = join(&path, &entry.key);
        if let Err(error) = check_name(&entry.key) {
            report.bad_value(entry.key_mark, &path, error);
        }
        let value = read(&entry.value, &path, report);
        if !table.contains(&entry.key) {
            table.insert(entry.key.clone(), value);
        }
    }
    table
}
