use crate::progress::ProgressEvent;
use crate::ready::{ReadyEvent, RecordingReady};
use crate::result::{Recorded, ResultEvent};
use crate::tap::{TapKey, TapSecond};
use schemars::JsonSchema;
use serde::Serialize;

/// A line of standard output.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Message {
    /// A program forwards, or sends.
    Ready(ReadyEvent),
    /// A program without DPDK records.
    #[serde(rename = "ready")]
    RecordingReady(RecordingReady),
    /// A program cannot run.
    Error(ErrorEvent),
    /// How far a program is.
    Progress(ProgressEvent),
    /// How packets of two links are matched.
    Matching(TapKey),
    /// What became of packets in a second.
    Second(TapSecond),
    /// What a program has counted, at its end.
    Result(Box<ResultEvent>),
    /// What a program without DPDK has recorded, at its end.
    #[serde(rename = "result")]
    Recorded(Box<Recorded>),
}

/// Why a program cannot run.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ErrorEvent {
    /// Name of what is wrong, in kebab case; stable, unlike the message.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do about it, if that is known.
    pub hint: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Progress, State, Written};

    fn text(message: &Message) -> String {
        serde_json::to_string(message).expect("a message is JSON")
    }

    #[test]
    fn a_hint_that_is_not_known_is_null() {
        let error = ErrorEvent { code: "ports", message: "no ports".into(), hint: None };
        let line = r#"{"event":"error","code":"ports","message":"no ports","hint":null}"#;
        assert_eq!(text(&Message::Error(error)), line);
    }

    #[test]
    fn what_is_not_there_yet_is_left_out() {
        let mut event = ProgressEvent {
            elapsed_s: 1.5,
            state: State::WarmUp,
            rx_packets: 2_u64.into(),
            stalls: 0_u64.into(),
            written: None,
            own: Progress::Stamp {},
        };
        let first =
            r#"{"event":"progress","elapsed_s":1.5,"state":"warm-up","rx_packets":2,"stalls":0"#;
        assert_eq!(text(&Message::Progress(event.clone())), format!("{first}}}"));
        event.written = Some(Written { recorded: 3_u64.into(), written: 0_u64.into() });
        let rest = r#","recorded":3,"written":0}"#;
        assert_eq!(text(&Message::Progress(event)), format!("{first}{rest}"));
    }
}
