//! Weka's traces of agents: an object for each conversation, with the requests of the conversation
//! and of its subagents. Source: <https://github.com/callanjfox/kv-cache-tester>,
//! `docs/trace_replay_tester.md`

use serde_json::Value;

use super::rows::{prompt_ids, required_width};
use super::{Dialect, Form, Lines};
use crate::conversation::Conversation;
use crate::trace::fields::{
    Fields, LineError, each, field, given, length, microseconds, time, wrong,
};
use crate::trace::prompt::Prompt;
use crate::trace::reading::Reading;
use crate::trace::request::{After, Event, TraceRequest, Wait, WaitTime};

const SECONDS: f64 = 1e6;

pub const WEKA: Dialect = Dialect {
    name: "weka",
    about: "Weka's traces of agents: one conversation per object, with subagents",
    sign: "requests with t and in, or with a block_size",
    example: r#"{"id": "one", "block_size": 64, "hash_id_scope": "local", "requests": [{"t": 0.0, "type": "n", "in": 130, "out": 5, "hash_ids": [1, 2], "api_time": 2.0}, {"t": 5.0, "type": "n", "in": 200, "out": 5, "hash_ids": [1, 2, 3]}]}
"#,
    form: Form::Lines(Lines {
        fields: &[&[
            "requests",
            "id",
            "models",
            "block_size",
            "hash_id_scope",
            "tool_tokens",
            "system_tokens",
            "totals",
        ]],
        is_like: |fields| {
            let first = fields.get("requests").and_then(|requests| requests.get(0));
            let is_turn = |turn: &Value| ["t", "in"].iter().any(|name| turn.get(*name).is_some());
            let has = |name: &str| fields.contains_key(name);
            first.is_some_and(|first| is_turn(first) || has("block_size") || has("hash_id_scope"))
        },
        extends_mooncake: false,
        read,
        table: None,
    }),
};

fn read(fields: &Fields, reading: &mut Reading) -> Result<(), LineError> {
    let width = required_width(fields, "block_size")?;
    match given(fields, "hash_id_scope").map(Value::as_str) {
        None | Some(Some("local")) => reading.own_ids(),
        Some(Some("global")) => {}
        Some(_) => {
            let message = "must be local (ids of this object only) or global";
            return Err(wrong("hash_id_scope", message.into()));
        }
    }
    let number = reading.next as u64;
    let mut conversation = Requests { width, number, num_agents: 0, reading };
    conversation.add_all(field(fields, "requests")?, 0, Vec::new()).map(|_| ())
}

/// The answer to a request, and its time.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Answer {
    request: u32,
    time: u64,
}

struct Requests<'a> {
    width: usize,
    /// A number of the conversation.
    number: u64,
    num_agents: u64,
    reading: &'a mut Reading,
}

impl Requests<'_> {
    /// Adds the requests of an agent. Each request waits for the answer to the previous one, and
    /// for the last answer of each subagent that began between the two. The traces' own player does
    /// the same. The first request waits for `after`. Times count from `start`. Returns the last
    /// answer.
    fn add_all(
        &mut self,
        requests: &Value,
        start: u64,
        mut after: Vec<Answer>,
    ) -> Result<Vec<Answer>, LineError> {
        let agent = self.num_agents;
        self.num_agents += 1;
        let conversation = Conversation::of_numbers(self.number, agent);
        let objects = each(requests, "requests", "objects", Value::as_object)?;
        let mut last = after.clone();
        for fields in objects {
            let time = time(fields, "t", SECONDS)?;
            if fields.get("type").is_some_and(|kind| kind == "subagent") {
                let joined = self.add_all(field(fields, "requests")?, time, last.clone())?;
                after.extend(joined.into_iter().filter(|answer| !last.contains(answer)));
                continue;
            }
            let index = (self.reading.next + self.reading.requests.len()) as u32;
            // Some traces count a subagent's times from its own start.
            let time = if time < start { time + start } else { time };
            let mut request = self.request(fields)?;
            request.conversation = Some(conversation);
            request.wait = self.wait(time, &after);
            request.arrival = Some(time);
            self.reading.requests.push(request);
            let took = microseconds(fields, "api_time", SECONDS)?.unwrap_or(0);
            last = vec![Answer { request: index, time: time + took }];
            after.clone_from(&last);
        }
        Ok(last)
    }

    /// Returns the wait of a request at a time for earlier answers. The request also waits for
    /// answers that came after this time.
    fn wait(&mut self, time: u64, answers: &[Answer]) -> Option<Box<Wait>> {
        if answers.iter().any(|answer| answer.time > time) {
            self.reading.note(
                "requests that began before an answer for which they wait arrive directly after it",
            );
        }
        let after = |&Answer { request, time: there }: &Answer| After {
            request,
            event: Event::Answer,
            delay: time.saturating_sub(there),
        };
        Wait::of(answers.iter().map(after).collect(), WaitTime::Recorded)
    }

    fn request(&mut self, fields: &Fields) -> Result<TraceRequest, LineError> {
        let length_of = |name: &str, least| length(field(fields, name)?, name, least);
        let (length, output_length) = (length_of("in", 1)?, length_of("out", 0)?);
        let none = Value::Array(Vec::new());
        let ids = given(fields, "hash_ids").unwrap_or(&none);
        let ids = prompt_ids(ids, "hash_ids", length, self.reading)?;
        let request = TraceRequest::of_prompt(Prompt::of_ids(length, ids), output_length);
        Ok(TraceRequest { tokens_per_id: Some(self.width), ..request })
    }
}
