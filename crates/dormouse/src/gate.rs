//! Gates: payloads of a machine's signals and answers to its units are checked against its declaration before they are
//! stored.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::limits::nearest;
use crate::schema::Schema;
use crate::unit::Refusal;
use crate::{
    Accepts, Answering, Declaration, DynMachine, Error, Interaction, Json, Limits, NewSignal, Outline, Takes,
};

/// Returns why a document does not decode.
pub(crate) type Check = fn(&Json) -> Result<(), String>;
/// Builds an output from a request, its answer, and who answered when.
pub(crate) type Projector = Arc<dyn Fn(&Json, &Json, &Answering) -> Result<Json, String> + Send + Sync>;

/// Why a document was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfit {
    pub(crate) refusal: Refusal,
    pub(crate) reason: String,
}

/// The gates of one version of a machine.
#[derive(Default)]
pub(crate) struct Gates {
    signals: Vec<Gate>,
    answers: Vec<Gate>,
    /// Whether signals of other names are refused.
    is_closed: bool,
    /// Why everything is refused: the declaration cannot be read here.
    unreadable: Option<String>,
}

impl Gates {
    /// The gates of code that is registered here, or what is wrong with its declaration.
    pub(crate) fn of(machine: &dyn DynMachine) -> Result<Self, String> {
        let steps = machine.steps();
        let takes = machine.takes();
        if let Some(stray) = takes.iter().find(|takes| !steps.iter().any(|step| step == takes.step())) {
            return Err(format!(
                "it declares which answers it accepts at {:?}, but it has no such step",
                stray.step()
            ));
        }
        Ok(Self {
            signals: machine.accepts().into_iter().map(Gate::of_signal).collect::<Result<_, _>>()?,
            answers: takes.into_iter().map(Gate::of_answer).collect::<Result<_, _>>()?,
            is_closed: !machine.accepts_others(),
            unreadable: None,
        })
    }

    /// The gates of code in another process: they check as much as its declaration says.
    pub(crate) fn elsewhere(declaration: &Declaration) -> Self {
        let schema = |schema: &Option<serde_json::Value>| schema.as_ref().map(Schema::compile);
        let signals = declaration.accepts.iter().map(|told| Gate {
            name: told.signal.clone(),
            also: told.also.clone(),
            schema: schema(&told.schema),
            code: Code::Elsewhere { outline: told.outline.clone(), builds: false },
        });
        let answers = declaration.takes.iter().map(|told| Gate {
            name: told.step.clone(),
            also: None,
            schema: schema(&told.schema),
            code: Code::Elsewhere { outline: told.outline.clone(), builds: told.is_built },
        });
        let is_closed = !declaration.accepts_others;
        Self { signals: signals.collect(), answers: answers.collect(), is_closed, unreadable: None }
    }

    /// The gates of a machine whose declaration cannot be read here.
    pub(crate) fn unreadable(reason: String) -> Self {
        Self { unreadable: Some(reason), ..Self::default() }
    }

    /// **A malformed payload is refused at the door**, before it is stored, and so is a signal of a name that this
    /// machine does not declare. A signal that its instance awaits counts as declared.
    pub(crate) fn check_signal(
        &self,
        machine: &str,
        awaits: &[String],
        signal: &NewSignal,
    ) -> crate::Result<()> {
        let NewSignal { name, payload, .. } = signal;
        if !self.takes(name) && !awaits.contains(name) {
            let known = || self.signals.iter().map(|gate| gate.name.clone());
            let nearest = nearest(name, known());
            let mut accepts: Vec<_> = known().collect();
            accepts.dedup();
            return Err(Error::UndeclaredSignal {
                signal: name.clone(),
                machine: machine.to_owned(),
                nearest,
                accepts,
            });
        }
        self.payload(name, payload).map_err(|reason| Error::PayloadRefused {
            signal: name.clone(),
            machine: machine.to_owned(),
            reason,
        })
    }

    /// Whether this machine might refuse a signal, depending on what its instance awaits.
    pub(crate) fn might_refuse(&self, signal: &NewSignal) -> bool {
        !self.takes(&signal.name) || self.payload(&signal.name, &signal.payload).is_err()
    }

    /// Whether this machine accepts signals of this name.
    fn takes(&self, signal: &str) -> bool {
        !self.is_closed || self.signals.iter().any(|gate| gate.is_for(signal))
    }

    /// Returns why a payload of a signal is refused.
    pub(crate) fn payload(&self, signal: &str, payload: &Json) -> Result<(), String> {
        let mut of_signal = self.signals.iter().filter(|gate| gate.is_for(signal));
        let checked = of_signal.try_for_each(|gate| gate.check(payload));
        checked.map_err(|unfit| unfit.reason)
    }

    /// Whether this answer is accepted as it is, whatever was asked.
    pub(crate) fn are_open_for(&self, answer: &Json) -> bool {
        self.unreadable.is_none()
            && self.answers.iter().all(|gate| !gate.code.builds() && gate.check(answer).is_ok())
    }

    /// Whether code that is registered here builds the output for an answer to this step.
    pub(crate) fn build_at(&self, step: &str) -> bool {
        let builds = |code: &Code| matches!(code, Code::Here { projector: Some(_), .. });
        self.answers.iter().any(|gate| gate.name == step && builds(&gate.code))
    }

    /// The output to store for an answer. A projector needs to know who answers.
    pub(crate) fn answer(
        &self,
        limits: &Limits,
        asked: &Interaction,
        answer: Json,
        answering: Option<&Answering>,
    ) -> Result<Json, Unfit> {
        if let Some(reason) = &self.unreadable {
            return Err(Unfit { refusal: Refusal::Unchecked, reason: reason.clone() });
        }
        let mut of_step = self.answers.iter().filter(|gate| gate.name == asked.step);
        of_step.try_fold(answer, |answer, gate| gate.admit(limits, &asked.request, answer, answering))
    }
}

/// The check of one signal, or of the answers to one step.
struct Gate {
    /// The signal, or the step that reads the answer.
    name: String,
    /// Another name of the signal.
    also: Option<String>,
    /// Checks a document as it comes in.
    schema: Option<Schema>,
    code: Code,
}

/// What is known of the machine's code.
enum Code {
    /// It is here: whether it can read a stored document, and perhaps how it builds one.
    Here { reads: Check, projector: Option<Projector> },
    /// It is in another process, which declared an outline of what it reads, and whether it builds the output.
    Elsewhere { outline: Outline, builds: bool },
}

impl Code {
    fn builds(&self) -> bool {
        matches!(self, Self::Elsewhere { builds: true, .. } | Self::Here { projector: Some(_), .. })
    }
}

impl Gate {
    fn is_for(&self, signal: &str) -> bool {
        self.name == signal || self.also.as_deref() == Some(signal)
    }

    fn of_signal(accepts: Accepts) -> Result<Self, String> {
        let name = accepts.name.to_owned();
        let schema = usable(accepts.schema.as_ref(), || format!("the signal {name:?}"))?;
        let code = Code::Here { reads: accepts.check, projector: None };
        Ok(Self { name, also: accepts.also, schema, code })
    }

    fn of_answer(takes: Takes) -> Result<Self, String> {
        let name = takes.step.into_owned();
        let schema = usable(takes.schema.as_ref(), || format!("what it takes at {name:?}"))?;
        let code = Code::Here { reads: takes.reads, projector: takes.projector };
        Ok(Self { name, also: None, schema, code })
    }

    /// Checks a document that is stored as it is.
    fn check(&self, document: &Json) -> Result<(), Unfit> {
        self.schema.as_ref().map_or(Ok(()), |schema| schema.check(document))?;
        match &self.code {
            Code::Here { reads, .. } => reads(document).map_err(unfit(Refusal::Malformed)),
            Code::Elsewhere { outline, .. } => outline.check(document).map_err(unfit(Refusal::Malformed)),
        }
    }

    /// The output to store for an answer: checked as it came, built, and checked as the step will read it.
    fn admit(
        &self,
        limits: &Limits,
        request: &Json,
        answer: Json,
        answering: Option<&Answering>,
    ) -> Result<Json, Unfit> {
        self.schema.as_ref().map_or(Ok(()), |schema| schema.check(&answer))?;
        match &self.code {
            Code::Elsewhere { outline, builds } => {
                outline.check(&answer).map_err(unfit(Refusal::Malformed))?;
                if *builds {
                    return Err(unfit(Refusal::Unchecked)(
                        "the machine builds its output from the answer, and this process does not have its code"
                            .to_owned(),
                    ));
                }
                Ok(answer)
            }
            Code::Here { reads, projector } => {
                let output = match projector {
                    None => answer,
                    Some(project) => {
                        let answering = answering.expect("a projector is given who answers");
                        let built = built(limits, || project(request, &answer, answering));
                        built.map_err(unfit(Refusal::Projection))?
                    }
                };
                reads(&output).map_err(unfit(Refusal::Malformed))?;
                Ok(output)
            }
        }
    }
}

fn built(limits: &Limits, project: impl FnOnce() -> Result<Json, String>) -> Result<Json, String> {
    let built = catch_unwind(AssertUnwindSafe(project));
    let built = built.unwrap_or_else(|_| Err("it panicked".to_owned()))?;
    limits.check_document("output", &built).map_err(|error| error.to_string())?;
    Ok(built)
}

/// Compiles the schema, or returns why it cannot be used, naming what it is the schema of.
fn usable(schema: Option<&serde_json::Value>, of: impl Fn() -> String) -> Result<Option<Schema>, String> {
    let compiled = schema.map(|schema| Schema::compile(schema).usable()).transpose();
    compiled.map_err(|reason| format!("the schema of {} cannot be used: {reason}", of()))
}

fn unfit(refusal: Refusal) -> impl Fn(String) -> Unfit {
    move |reason| Unfit { refusal, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Signal;

    const PAID: Signal<u64> = Signal::named("paid");

    #[test]
    fn a_malformed_payload_is_refused_at_the_door() {
        let signals = vec![Gate::of_signal(PAID.into()).expect("a gate")];
        let gates = Gates { signals, is_closed: true, ..Gates::default() };
        let check = |name: &str, payload: serde_json::Value, awaits: &[&str]| {
            let awaits: Vec<_> = awaits.iter().map(ToString::to_string).collect();
            gates.check_signal("m", &awaits, &NewSignal::new(name, Json::from(payload)))
        };
        assert!(check("paid", 100.into(), &[]).is_ok());
        let refused = check("paid", "lots".into(), &["paid"]);
        assert!(matches!(refused, Err(Error::PayloadRefused { .. })), "{refused:?}");
        let unknown = check("payed", 100.into(), &[]);
        assert!(matches!(unknown, Err(Error::UndeclaredSignal { .. })), "{unknown:?}");
        assert!(check("payed", 100.into(), &["payed"]).is_ok(), "what is awaited is declared by that");
    }
}
