//! Options of the command line that an experiment may read.

/// Options for short runs, and options of single experiments.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// Like --quick, with a quarter of its repetitions and times: tests that the experiment runs. The figures are
    /// worthless.
    #[arg(long)]
    pub brief: bool,
    /// For flow-steering: number of NFs that classification reaches directly; the others take another hop [default:
    /// all].
    #[arg(long, value_name = "N")]
    pub queues: Option<u32>,
    /// For flow-steering: classify by this NIC's own flow steering; refused if the NIC does not support it.
    #[arg(long, value_name = "INTERFACE")]
    pub nic: Option<String>,
}

impl Options {
    /// Returns the options as written on the command line, each after a space.
    pub fn command_line(&self) -> String {
        let brief = if self.brief { " --brief" } else { "" };
        let queues = self.queues.map(|queues| format!(" --queues {queues}"));
        let nic = self.nic.as_ref().map(|nic| format!(" --nic {nic}"));
        brief.to_owned() + &queues.unwrap_or_default() + &nic.unwrap_or_default()
    }
}
