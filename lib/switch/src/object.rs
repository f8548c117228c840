//! The object that the switch is compiled to: choosing its programs, loading it.

use crate::SwitchError;
use crate::program::{Form, Switch};
use libbpf_rs::{Object, ObjectBuilder, OpenMapMut, OpenObject, ProgramMut};
use std::os::fd::AsFd;
use std::path::Path;

/// Prefix of the names of maps that outlive the process.
pub(crate) const PINNED: &str = "nfl_";
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/switch.bpf.o"));

/// Loads the switch in a loop form. The switch's maps are pinned in `pin`, or taken from there.
pub(crate) fn load_form(form: Form, pin: Option<&Path>) -> Result<Object, libbpf_rs::Error> {
    let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
    choose_programs(&mut open, form);
    if let Some(pin) = pin {
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if name.starts_with(PINNED) {
                map.set_pin_path(pin.join(name))?;
            }
        }
    }
    load_quietly(open)
}

/// Loads an object while libbpf's messages are kept back: the returned error has them.
fn load_quietly(open: OpenObject) -> Result<Object, libbpf_rs::Error> {
    let print = libbpf_rs::set_print(None);
    let loaded = open.load();
    libbpf_rs::set_print(print);
    loaded
}

/// Programs are named NAME_FORM where they loop, and NAME otherwise.
fn choose_programs(open: &mut OpenObject, form: Form) {
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let other = Form::ALL
            .iter()
            .any(|f| *f != form && name.ends_with(&format!("_{}", f.suffix())));
        // An uplink loads its own copy, with its port's number in it; programs of I/O threads are loaded on request.
        let later = ["uplink_", "serve_"]
            .iter()
            .any(|start| name.starts_with(start));
        program.set_autoload(!other && !later);
    }
}

impl Switch {
    /// Loads a single program of the object. The program shares the maps of this switch, except for the maps for
    /// which `keep` returns true.
    pub(crate) fn load_sharing_maps(
        &self,
        program: &str,
        keep: impl Fn(&str, &mut OpenMapMut<'_>) -> Result<bool, SwitchError>,
    ) -> Result<Object, SwitchError> {
        let failed = |what: &str| SwitchError::bpf(format!("the program {program}: {what}"));
        let mut open = ObjectBuilder::default()
            .open_memory(OBJECT)
            .map_err(failed("opening"))?;
        for mut found in open.progs_mut() {
            let wanted = found.name().to_string_lossy() == program;
            found.set_autoload(wanted);
        }
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if !keep(&name, &mut map)?
                && let Some(shared) = self.find_map(&name)
            {
                map.reuse_fd(shared.as_fd())
                    .map_err(failed("sharing the switch's maps"))?;
            }
        }
        load_quietly(open).map_err(failed("loading"))
    }
}

/// A program of a loaded object.
pub(crate) fn find_program<'a>(
    object: &'a Object,
    name: &str,
) -> Result<ProgramMut<'a>, SwitchError> {
    let found = object
        .progs_mut()
        .find(|program| program.name().to_string_lossy() == name);
    found.ok_or_else(|| SwitchError::Limit(format!("the object has no program {name}")))
}
