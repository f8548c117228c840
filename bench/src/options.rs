//! Options of the command line that an experiment may read.

/// How brief a run is, and the options of single experiments.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// Like --quick, with a quarter of its repetitions and times: shows that the experiment runs. The figures are worthless.
    #[arg(long)]
    pub brief: bool,
    /// Of flow-steering: NFs that classification reaches directly, the rest takes another hop [default: all].
    #[arg(long, value_name = "N")]
    pub queues: Option<u32>,
    /// Of flow-steering: classify by this NIC's own flow steering; refused where that cannot be done.
    #[arg(long, value_name = "INTERFACE")]
    pub nic: Option<String>,
}

impl Options {
    /// Returns the options as they are written on the command line, each behind a space.
    pub fn command_line(&self) -> String {
        let brief = if self.brief { " --brief" } else { "" };
        let queues = self.queues.map(|queues| format!(" --queues {queues}"));
        let nic = self.nic.as_ref().map(|nic| format!(" --nic {nic}"));
        brief.to_owned() + &queues.unwrap_or_default() + &nic.unwrap_or_default()
    }
}
