//! What is wrong with a configuration file, as its operator reads it.
//!
//! Everything that is wrong is said at once: a start that fails five times for five faults is five
//! deployments.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is not there or may not be read.
    #[error("read the configuration file `{}`", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file was read and does not hold together.
    #[error("{}", listed(file, complaints))]
    Refused {
        file: String,
        /// In the order of the file; what is not in the file comes last.
        complaints: Vec<Complaint>,
    },
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// The file; `None` when the fault is not in it, but for example in the environment.
    pub file: Option<String>,
    /// Line and column, from 1; the column counts characters. `None` for what the file leaves out.
    pub place: Option<(usize, usize)>,
    /// What it is about, for example ``field `channel.acme.timeout` = "20m"``.
    pub subject: String,
    /// The law that is broken, and the way out.
    pub law: String,
    /// The faulty line itself, where pointing helps; secrets are hidden.
    pub quote: Option<String>,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
            if let Some((line, column)) = self.place {
                write!(f, "{line}:{column}:")?;
            }
            f.write_str(" ")?;
        }
        write!(f, "{}: {}", self.subject, self.law)?;
        if let (Some(quote), Some((line, _))) = (&self.quote, self.place) {
            let margin = line.to_string().len();
            for (number, text) in quote.lines().enumerate() {
                let gutter = if number == 0 { line.to_string() } else { " ".repeat(margin) };
                write!(f, "\n  {gutter} | {text}")?;
            }
        }
        Ok(())
    }
}

fn listed(file: &str, complaints: &[Complaint]) -> String {
    let count = match complaints.len() {
        1 => "1 fault".to_owned(),
        many => format!("{many} faults"),
    };
    let complaints: Vec<String> = complaints.iter().map(ToString::to_string).collect();
    format!(
        "{count} in the configuration `{file}`:
{}",
        complaints.join(
            "
"
        )
    )
}
