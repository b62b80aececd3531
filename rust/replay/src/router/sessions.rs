//! Finds the conversations of requests.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

use crate::trace::{Prompt, Trace, TraceRequest};

/// The number of tokens after the common prefix that distinguish conversations, in traces without
/// ids.
const NUM_TOKENS: usize = 64;

/// Returns a hash for the conversation of each request. It is computed from the first of these that
/// exists:
///
/// - the session that the request's line names;
/// - the first chat that the request continues;
/// - the part of its prompt after the prefix that all prompts of the trace share.
///
/// A prompt without ids is a separate conversation.
pub fn sessions(trace: &Trace) -> Vec<u64> {
    let requests = trace.requests();
    let common = num_common(requests);
    let mut first_of_chat = HashMap::new();
    let session = |(index, request): (usize, &TraceRequest)| match &request.conversation {
        Some(conversation) => {
            let own = conversation.id;
            let parent = conversation.continues.unwrap_or(own);
            let first = first_of_chat.get(&parent).copied().unwrap_or(parent);
            first_of_chat.insert(own, first);
            xxh3_64(&first.to_le_bytes())
        }
        None if ids(&request.prompt).next().is_none() => xxh3_64(&index.to_le_bytes()),
        None => xxh3_64(&beginning(&request.prompt, common)),
    };
    requests.iter().enumerate().map(session).collect()
}

/// Returns the number of leading ids, or tokens, that all prompts share.
fn num_common(requests: &[TraceRequest]) -> usize {
    let Some(first) = requests.first() else { return 0 };
    requests.iter().fold(ids(&first.prompt).count(), |common, request| {
        let pairs = ids(&first.prompt).take(common).zip(ids(&request.prompt));
        pairs.take_while(|(a, b)| a == b).count()
    })
}

fn ids(prompt: &Prompt) -> Box<dyn Iterator<Item = i64> + '_> {
    match prompt {
        Prompt::HashIds { hash_ids, .. } => Box::new(hash_ids.iter().take(prompt.num_ids())),
        Prompt::Tokens { tokens, length } => Box::new(tokens[..*length].iter().copied()),
    }
}

fn beginning(prompt: &Prompt, common: usize) -> Vec<u8> {
    let count = match prompt {
        Prompt::HashIds { .. } => 1,
        Prompt::Tokens { .. } => NUM_TOKENS,
    };
    ids(prompt).skip(common).take(count).flat_map(|id| id.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_lines(lines: &[&str]) -> Vec<u64> {
        let mut trace = Trace::default();
        for line in lines {
            let request = TraceRequest::from_line(line.as_bytes()).expect("a good line");
            trace.push(request).expect("lines that go together");
        }
        sessions(&trace)
    }

    #[test]
    fn the_first_id_behind_the_common_prefix_identifies_the_conversation() {
        let line = |ids: &str| {
            let length = 512 * ids.split(',').count();
            format!(r#"{{"input_length": {length}, "output_length": 1, "hash_ids": [{ids}]}}"#)
        };
        let lines = ["0,1,2", "0,3,4", "0,1,5,6", "0,3"].map(line);
        let sessions = of_lines(&lines.each_ref().map(String::as_str));
        assert_eq!(sessions[0], sessions[2]);
        assert_eq!(sessions[1], sessions[3]);
        assert_ne!(sessions[0], sessions[1]);
    }

    #[test]
    fn requests_of_a_chat_belong_to_its_first() {
        let line = |chat: &str| {
            format!(r#"{{{chat}, "input_length": 16, "output_length": 1, "hash_ids": [7]}}"#)
        };
        let chats = [
            r#""chat_id": 1, "parent_chat_id": -1"#,
            r#""chat_id": 2, "parent_chat_id": -1"#,
            r#""chat_id": 3, "parent_chat_id": 1"#,
            r#""chat_id": 4, "parent_chat_id": 3"#,
        ];
        let sessions = of_lines(&chats.map(line).each_ref().map(String::as_str));
        assert_eq!(sessions[0], sessions[2]);
        assert_eq!(sessions[2], sessions[3]);
        assert_ne!(sessions[0], sessions[1]);
    }

    #[test]
    fn a_session_id_may_be_a_word() {
        let line = |id: &str| {
            format!(r#"{{"session_id": {id}, "prompt_token_ids": [1], "output_length": 1}}"#)
        };
        let sessions = of_lines(&[r#""a""#, r#""b""#, r#""a""#].map(line).each_ref().map(|l| &**l));
        assert_eq!(sessions[0], sessions[2]);
        assert_ne!(sessions[0], sessions[1]);
    }
}
