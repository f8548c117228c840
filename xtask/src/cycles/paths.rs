//! The modules of a crate, and the paths that the modules name.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, UseTree, Visibility};

/// Largest number of `pub use` steps for resolving a name.
const STEPS_MAX: usize = 8;

/// A file of a crate.
pub struct Module {
    /// Path below the crate's root.
    path: Vec<String>,
    /// The paths that the file names, from the root on.
    named: Vec<Vec<String>>,
    /// The names that the file re-exports by `pub use`, and their origins. `*`: all names of a module.
    handed_on: BTreeMap<String, Vec<Vec<String>>>,
}

impl Module {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// The text is not valid Rust.
    pub fn parse(path: Vec<String>, text: &str) -> Result<Self> {
        let file = syn::parse_file(text)?;
        let mut names = Names {
            at: path.clone(),
            children: children(&file.items),
            named: Vec::new(),
            handed_on: BTreeMap::new(),
        };
        names.visit_file(&file);
        Ok(Module {
            path,
            named: names.named,
            handed_on: names.handed_on,
        })
    }

    /// The name for messages.
    pub fn name(&self) -> String {
        if self.path.is_empty() {
            return "the root".to_owned();
        }
        self.path.join("::")
    }
}

/// Reads all files of a crate.
///
/// # Errors
/// A file cannot be read, or is not valid Rust.
pub fn read(source: &Path) -> Result<Vec<Module>> {
    let mut modules = Vec::new();
    read_folder(source, &[], &mut modules)?;
    Ok(modules)
}

fn read_folder(folder: &Path, place: &[String], modules: &mut Vec<Module>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    for file in files {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let mut path = place.to_vec();
        if file.is_dir() {
            path.push(stem.into_owned());
            read_folder(&file, &path, modules)?;
            continue;
        }
        // Programs in `bin` are crates of their own.
        let is_program = place.first().is_some_and(|first| first == "bin");
        let is_test = stem == "tests" || place.iter().any(|part| part == "tests");
        if file.extension().is_none_or(|end| end != "rs") || is_program || is_test {
            continue;
        }
        let is_root = place.is_empty() && (stem == "lib" || stem == "main");
        if stem != "mod" && !is_root {
            path.push(stem.into_owned());
        }
        let text = fs::read_to_string(&file)?;
        let parsed = Module::parse(path, &text);
        modules.push(parsed.with_context(|| format!("parsing {}", file.display()))?);
    }
    Ok(())
}

/// Returns for each module the modules that it depends on.
pub fn edges(modules: &[Module]) -> Vec<Vec<usize>> {
    let mut places: BTreeMap<&[String], usize> = BTreeMap::new();
    for (at, module) in modules.iter().enumerate() {
        // A crate with `lib.rs` and `main.rs` has two roots.
        places.entry(&module.path).or_insert(at);
    }
    let of = |(at, module): (usize, &Module)| {
        let named = module.named.iter();
        let mut targets: Vec<usize> = named
            .filter_map(|path| owner(modules, &places, path, 0))
            .filter(|target| *target != at)
            .collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    };
    modules.iter().enumerate().map(of).collect()
}

/// Returns the module that defines the item of a path, through `pub use`.
fn owner(
    modules: &[Module],
    places: &BTreeMap<&[String], usize>,
    path: &[String],
    steps: usize,
) -> Option<usize> {
    let known = (0..=path.len()).rev();
    let (length, at) = known
        .filter_map(|length| Some((length, *places.get(&path[..length])?)))
        .next()?;
    let module = &modules[at];
    let Some(name) = path.get(length).filter(|_| steps < STEPS_MAX) else {
        return Some(at);
    };
    if let Some([from, ..]) = module.handed_on.get(name).map(Vec::as_slice) {
        return owner(modules, places, from, steps + 1);
    }
    Some(at)
}

/// Returns the names of modules that are declared here.
fn children(items: &[Item]) -> Vec<String> {
    let modules = items.iter().filter_map(|item| match item {
        Item::Mod(module) => Some(module.ident.to_string()),
        _ => None,
    });
    modules.collect()
}

/// Visitor that collects the paths of a file.
struct Names {
    /// The module that the visitor is in.
    at: Vec<String>,
    /// The modules that this module declares: `use child::X` needs no `self`.
    children: Vec<String>,
    named: Vec<Vec<String>>,
    handed_on: BTreeMap<String, Vec<Vec<String>>>,
}

impl Names {
    /// Returns a path from the root on; `None` if the path leads out of the crate, or names something in this module.
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        let mut place = self.at.clone();
        let mut rest = path;
        match path.first().map(String::as_str)? {
            "crate" => {
                place.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|first| first == "super") {
                    place.pop()?;
                    rest = &rest[1..];
                }
            }
            first if self.children.iter().any(|child| child == first) => {}
            _ => return None,
        }
        place.extend(rest.iter().cloned());
        Some(place)
    }

    fn take_use(&mut self, tree: &UseTree, before: &mut Vec<String>, is_public: bool) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.take_use(&path.tree, before, is_public);
                before.pop();
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.take_use(tree, before, is_public);
                }
            }
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                self.take_name(before, &name, &name, is_public);
            }
            UseTree::Rename(rename) => {
                let (name, new) = (rename.ident.to_string(), rename.rename.to_string());
                self.take_name(before, &name, &new, is_public);
            }
            UseTree::Glob(_) => self.take_name(before, "self", "*", is_public),
        }
    }

    fn take_name(&mut self, before: &[String], name: &str, new: &str, is_public: bool) {
        let mut path = before.to_vec();
        if name != "self" {
            path.push(name.to_owned());
        }
        let new = if new == "self" {
            before.last().cloned().unwrap_or_default()
        } else {
            new.to_owned()
        };
        let Some(path) = self.absolute(&path) else {
            return;
        };
        if is_public {
            self.handed_on.entry(new).or_default().push(path);
        } else {
            self.named.push(path);
        }
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|path| path.is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        let Some((_, items)) = &module.content else {
            return;
        };
        if is_test(&module.attrs) {
            return;
        }
        self.at.push(module.ident.to_string());
        let own = std::mem::replace(&mut self.children, children(items));
        visit::visit_item_mod(self, module);
        self.children = own;
        self.at.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if is_test(&item.attrs) {
            return;
        }
        let is_public = !matches!(item.vis, Visibility::Inherited);
        self.take_use(&item.tree, &mut Vec::new(), is_public);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter();
        let names: Vec<String> = segments.map(|segment| segment.ident.to_string()).collect();
        // A single name is defined here, or was imported by a `use`.
        if names.len() > 1
            && let Some(path) = self.absolute(&names)
        {
            self.named.push(path);
        }
        visit::visit_path(self, path);
    }
}
