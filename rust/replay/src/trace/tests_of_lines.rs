//! Tests how the lines of each dialect are read.

use kvoxide_core::RetentionPriority;

use super::*;

fn field_at_fault(line: &str) -> String {
    TraceRequest::from_line(line.as_bytes()).expect_err("a damaged line").field
}

fn read(line: &str) -> TraceRequest {
    TraceRequest::from_line(line.as_bytes()).expect("a good line")
}

#[test]
fn a_mooncake_line_gives_the_tokens_of_its_ids() {
    let line = r#"{"timestamp": 3, "input_length": 600, "output_length": 7, "hash_ids": [2, 5]}"#;
    let request = TraceRequest::from_line(line.as_bytes()).expect("a good line");
    assert_eq!(request.output_length, 7);
    assert_eq!(request.prompt.len(), 600);
    let tokens = [0, 511, 512, 599].map(|t| request.prompt.token(t, 512));
    assert_eq!(tokens, [1024, 1535, 2560, 2647]);
    let tokens = [0, 299, 300, 599].map(|t| request.prompt.token(t, 300));
    assert_eq!(tokens, [600, 899, 1500, 1799]);
}

#[test]
fn a_line_may_set_a_priority_and_a_time_to_live() {
    let read_priority = |fields: &str| {
        let line = format!(r#"{{"prompt_token_ids": [1], "output_length": 1{fields}}}"#);
        TraceRequest::from_line(line.as_bytes()).map(|request| (request.priority, request.arrival))
    };
    assert_eq!(read_priority(""), Ok((None, None)));
    let expected = |priority, ttl| RetentionPriority::new(priority, ttl).ok();
    assert_eq!(
        read_priority(r#", "priority": 80, "ttl": 1.5, "timestamp": 7"#),
        Ok((expected(80, Some(1.5)), Some(7_000)))
    );
    assert_eq!(read_priority(r#", "priority": 0, "ttl": null"#), Ok((expected(0, None), None)));
    for (fields, field) in [
        (r#", "priority": 101"#, "priority"),
        (r#", "priority": 50.5"#, "priority"),
        (r#", "priority": "high""#, "priority"),
        (r#", "priority": 80, "ttl": 0"#, "ttl"),
        (r#", "ttl": "long""#, "ttl"),
    ] {
        assert_eq!(read_priority(fields).expect_err(fields).field, field);
    }
}

#[test]
fn a_token_line_gives_its_tokens() {
    let line = br#"{"prompt_token_ids": [5, -1], "output_length": 0}"#;
    let request = TraceRequest::from_line(line).expect("a good line");
    assert_eq!(request.prompt, Prompt::of_tokens(vec![5, -1]));
}

#[test]
fn a_damaged_line_names_its_field() {
    assert_eq!(field_at_fault("{"), "");
    assert_eq!(field_at_fault("[1]"), "");
    assert_eq!(field_at_fault(r#"{"output_length": 1}"#), "input_length");
    assert_eq!(
        field_at_fault(r#"{"input_length": 0, "output_length": 1, "hash_ids": []}"#),
        "input_length"
    );
    assert_eq!(
        field_at_fault(r#"{"input_length": 3, "output_length": 1, "hash_ids": [-1]}"#),
        "hash_ids"
    );
    assert_eq!(field_at_fault(r#"{"input_length": 3, "hash_ids": [1]}"#), "output_length");
    assert_eq!(
        field_at_fault(r#"{"prompt_token_ids": [1.5], "output_length": 1}"#),
        "prompt_token_ids"
    );
    assert_eq!(
        field_at_fault(r#"{"prompt_token_ids": [1], "output_length": -1}"#),
        "output_length"
    );
}

#[test]
fn a_recorded_line_has_ids_of_the_output() {
    let request = read(
        r#"{"timestamp": 3.25, "input_length": 20, "output_length": 30, "hash_ids": [0, 1],
            "output_hash_ids": [2]}"#,
    );
    assert_eq!((request.arrival, request.tokens_per_id), (Some(3_250), None));
    assert_eq!((request.prompt.num_ids(), request.num_known_tokens(16)), (2, 48));
    let hash_ids = |ids| format!(r#""input_length": 9, "output_length": 1, "hash_ids": {ids}"#);
    let none = read(&format!("{{{}, \"output_hash_ids\": []}}", hash_ids("[7]")));
    assert_eq!(none.num_known_tokens(16), 10, "the prompt's last id goes on behind it");
    assert_eq!(read(&format!("{{{}}}", hash_ids("[7]"))).num_known_tokens(16), 9);
    for ids in ["[1, 2]", "[-1]", "5", "[1.5]"] {
        let line = format!("{{{}, \"output_hash_ids\": {ids}}}", hash_ids("[7]"));
        assert_eq!(field_at_fault(&line), "output_hash_ids", "{ids}");
    }
}

#[test]
fn lines_of_dynamo_and_of_spreadsheets_are_mooncakes() {
    let same = [
        r#"{"input_length": 20, "output_length": 0, "timestamp": 3, "hash_ids": [4, 9]}"#,
        r#"{"input_tokens": 20, "output_tokens": 0, "created_time": 3, "hash_ids": [4, 9]}"#,
        r#"{"input_length": 20.0, "output_length": null, "timestamp": 3, "hash_ids": [4.0, 9]}"#,
        "\u{feff}{\"input_length\": 20, \"output_tokens\": 0, \"timestamp\": 3, \"hash_ids\": [4, 9]}",
    ];
    same.iter().for_each(|line| assert_eq!(read(line), read(same[0]), "{line}"));
    assert_eq!(field_at_fault(r#"{"input_length": 20.5, "hash_ids": [4, 9]}"#), "input_length");
    let both = r#"{"input_length": 1, "input_tokens": 20, "output_length": 1, "hash_ids": [4]}"#;
    assert_eq!(read(both).prompt.len(), 1, "Mooncake's own name counts");
}

#[test]
fn a_line_may_say_how_many_tokens_an_id_has() {
    let of = |size: &str| {
        let rest = r#""input_length": 20, "output_length": 1, "hash_ids": [4, 9]"#;
        format!(r#"{{"block_size": {size}, {rest}}}"#)
    };
    assert_eq!(read(&of("16")).tokens_per_id, Some(16));
    assert_eq!(read(&of("null")).tokens_per_id, None);
    for size in ["0", "-1", "1.5", "\"16\"", "1e12"] {
        assert_eq!(field_at_fault(&of(size)), "block_size", "{size}");
    }
}

/// Reads lines after detecting their dialect from all of them.
fn trace(lines: &[&str]) -> (Trace, Reader) {
    let (mut trace, mut reader) = (Trace::default(), Reader::default());
    let first: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
    assert!(reader.find_dialect(&first));
    for line in lines {
        trace.push_line(&mut reader, line.as_bytes()).expect(line);
    }
    (trace, reader)
}

/// Reads lines to the end.
pub(super) fn read_whole(lines: &[impl AsRef<str>]) -> Result<(Trace, Reader), LineError> {
    let (mut trace, mut reader) = (Trace::default(), Reader::default());
    for line in lines {
        trace.push_line(&mut reader, line.as_ref().as_bytes())?;
    }
    trace.finish(&mut reader, false)?;
    Ok((trace, reader))
}

fn error(lines: &[&str]) -> LineError {
    let (last, before) = lines.split_last().expect("a line");
    let (mut trace, mut reader) = trace(before);
    let num_requests = trace.requests().len();
    let error = trace.push_line(&mut reader, last.as_bytes()).expect_err(last);
    assert_eq!(trace.requests().len(), num_requests);
    error
}

fn waits(trace: &Trace) -> Vec<Option<(Vec<u32>, u64)>> {
    let wait = |wait: &Wait| {
        assert!(wait.after.iter().all(|after| after.event == Event::Answer));
        let requests = wait.after.iter().map(|after| after.request).collect();
        (requests, wait.after[0].delay)
    };
    trace.requests().iter().map(|request| request.wait.as_deref().map(wait)).collect()
}

#[test]
fn ids_may_stand_for_whole_blocks_only() {
    let ids: Vec<_> = (0..323).collect();
    let line = format!(r#"{{"input_length":20675,"output_length":1,"hash_ids":{ids:?}}}"#);
    let (trace, _) = trace(&[&line]);
    assert_eq!(trace.tokens_per_id(), Ok(64));
    assert_eq!(trace.requests()[0].num_known_tokens(64), 323 * 64);
}

#[test]
fn only_the_equality_of_ids_counts() {
    let row =
        |ids: &str| format!(r#"{{"input_length": 1536, "output_length": 1, "hash_ids": [{ids}]}}"#);
    let same = [r#""9f3c0d5e11aa0b42", 18446744073709551615, 7"#, r#""9f3c0d5e11aa0b42", 5, 6"#];
    let [first, second] = same.map(row);
    let (trace, _) = trace(&[&first, &second]);
    let [first, second] = [0, 1].map(|index| match &trace.requests()[index].prompt {
        Prompt::HashIds { hash_ids, .. } => hash_ids.iter().collect::<Vec<_>>(),
        Prompt::Tokens { .. } => Vec::new(),
    });
    assert_eq!((first[0], first[2]), (second[0], 7));
    assert!(first[1] < 0 && first[0] < 0 && first[0] != first[1]);
}

#[test]
fn a_turn_with_a_delay_waits_for_the_one_before() {
    let rest = r#""input_length": 8, "output_length": 1, "hash_ids": [1]"#;
    let [a, b, c, d] = [
        r#""session_id": "a", "timestamp": 5"#,
        r#""session_id": "b", "timestamp": 6"#,
        r#""session_id": "a", "delay": 250"#,
        r#""session_id": "a""#,
    ]
    .map(|fields| format!("{{{fields}, {rest}}}"));
    let (read, reader) = trace(&[&a, &b, &c, &d]);
    assert_eq!(reader.dialect(), Some("aiperf"));
    assert_eq!(waits(&read), [None, None, Some((vec![0], 250_000)), Some((vec![2], 0))]);
    let wrong = format!(r#"{{"session_id": "a", "delay": -1, {rest}}}"#);
    assert_eq!(error(&[&a, &wrong]).field, "delay");
}

#[test]
fn dynamos_rows_wait_for_the_requests_that_they_name() {
    let rest = r#""input_length": 8, "output_length": 1, "hash_ids": [1]"#;
    let [a, b, c] = [
        r#""request_id": "a", "timestamp": 0"#,
        r#""request_id": "b", "timestamp": 1"#,
        r#""request_id": "c", "wait_for": ["a", "b"], "delay_ms": 2, "tool_wait_ms": 3.5"#,
    ]
    .map(|fields| format!("{{{fields}, {rest}}}"));
    let (read, reader) = trace(&[&a, &b, &c]);
    assert_eq!(reader.dialect(), Some("dynamo"));
    assert_eq!(waits(&read), [None, None, Some((vec![0, 1], 5_500))]);
    let own = format!(r#"{{"request_id": "d", "wait_for": ["d"], {rest}}}"#);
    let refused = error(&[&a, &own]);
    assert_eq!(refused.field, "wait_for");
    assert!(refused.message.contains("\"d\", the request itself"), "{refused}");
    assert_eq!(error(&[&a, &a]).field, "request_id");
}

#[test]
fn dynamos_output_tokens_are_ids_of_blocks() {
    let tokens = |ids: &[i64]| ids.iter().flat_map(|&id| [id; 16]).collect::<Vec<_>>();
    let row = |length: usize, ids: &str, output: &[i64]| {
        let count = output.len().max(1);
        format!(
            r#"{{"input_length": {length}, "output_length": {count}, "hash_ids": [{ids}],
                "output_token_ids": {output:?}}}"#
        )
    };
    let known = |line: &str| {
        let (trace, reader) = trace(&[line]);
        let width = trace.tokens_per_id().unwrap_or(16);
        (trace.requests()[0].num_known_tokens(width), reader.notes().len())
    };
    assert_eq!(known(&row(32, "0, 1", &tokens(&[2, 3]))), (64, 0));
    assert_eq!(known(&row(20, "0, 1", &tokens(&[1, 2, 3])[4..])), (64, 0));
    let generated = [90, 91, 91, 92, 7, 7, 7, 3];
    assert_eq!(known(&row(32, "0, 1", &generated)).1, 1);
    let (trace, _) = trace(&[&row(32, "0, 1", &generated)]);
    assert!(!trace.has_answers());
    for others in ["[2, 2]", "[]"] {
        let line = row(32, "0, 1", &[2]).replace("[2]", others);
        assert_eq!(error(&[&line]).field, "output_token_ids");
    }
}

#[test]
fn dynamos_priority_is_none_of_blocks() {
    let rest = r#""input_length": 8, "output_length": 1, "hash_ids": [1]"#;
    let row = |priority: &str| format!(r#"{{"priority": {priority}, {rest}}}"#);
    for priority in ["-5", "120"] {
        let (trace, reader) = trace(&[&row("7"), &row(priority), &row("3")]);
        assert_eq!(reader.dialect(), Some("dynamo"));
        assert!(trace.requests().iter().all(|request| request.priority.is_none()));
        assert_eq!(
            reader.notes(),
            ["priority is Dynamo's order of scheduling, which is not replayed"]
        );
    }
    let (trace, reader) = trace(&[&row("7")]);
    assert_eq!((reader.dialect(), reader.notes().len()), (Some("mooncake"), 0));
    assert!(trace.requests()[0].priority.is_some());
}

#[test]
fn lines_of_two_dialects_are_no_trace() {
    let row = r#"{"input_length": 8, "output_length": 1, "hash_ids": [1]}"#;
    let chat =
        r#"{"chat_id": 1, "turn": 1, "input_length": 8, "output_length": 1, "hash_ids": [1]}"#;
    let refused = error(&[row, chat]);
    assert_eq!(refused.field, "chat_id");
    assert!(refused.message.contains("is a field of bailian, but earlier lines are mooncake"));
    let named = r#"{"wait_for": [], "input_length": 8, "output_length": 1, "hash_ids": [1]}"#;
    let (mut trace, mut reader) = trace(&[row]);
    trace.push_line(&mut reader, named.as_bytes()).expect("Mooncake's and more");
    assert_eq!(reader.dialect(), Some("dynamo"));
    let alone = r#"{"request_id": 1, "chat_id": 2, "event": "x", "requests": 3, "prompt": "hello",
        "input_length": 8, "output_length": 1, "hash_ids": [1]}"#;
    let (_, reader) = self::trace(&[alone]);
    assert_eq!((reader.dialect(), reader.notes().len()), (Some("mooncake"), 4));
}

#[test]
fn a_field_that_is_not_used_is_named() {
    let line = r#"{"input_length": 8, "output_length": 1, "hash_ids": [1], "images": 2}"#;
    let (_, reader) = trace(&[line, line]);
    assert_eq!(reader.notes(), ["field 'images' is not used"]);
}

#[test]
fn the_tokens_of_an_id_are_a_used_field_of_a_recording() {
    let (mut trace, mut reader) =
        (Trace::default(), Reader::of_dialect("recording").expect("a dialect"));
    let line = br#"{"input_length": 20, "output_length": 1, "hash_ids": [1, 2], "block_size": 16}"#;
    trace.push_line(&mut reader, line).expect("a line");
    assert_eq!((trace.tokens_per_id(), reader.notes()), (Ok(16), vec![]));
}

#[test]
fn aiperfs_rows_may_have_no_ids() {
    let (mut trace, mut reader) =
        (Trace::default(), Reader::of_dialect("aiperf").expect("a dialect"));
    let line = br#"{"input_length": 10, "output_length": 4}"#;
    trace.push_line(&mut reader, line).expect("a prompt without ids");
    assert_eq!(trace.requests()[0].num_known_tokens(512), 0);
    assert_eq!(reader.notes().len(), 1);
    let text = br#"{"text_input": "hello", "output_length": 4}"#;
    let refused = trace.push_line(&mut reader, text).expect_err("a text");
    assert_eq!(refused.field, "text_input");
}

#[test]
fn a_conversation_of_wekas_is_one_line() {
    let line = r#"{"id": "t", "block_size": 64, "hash_id_scope": "local", "requests": [
        {"t": 0.0, "type": "n", "in": 130, "out": 5, "hash_ids": [1, 2], "api_time": 2.0},
        {"t": 3.0, "type": "subagent", "requests": [
            {"t": 0.5, "type": "s", "in": 64, "out": 1, "hash_ids": [9], "api_time": 1.0},
            {"t": 2.0, "type": "s", "in": 80, "out": 1, "hash_ids": [9], "api_time": 1.0}]},
        {"t": 8.0, "type": "n", "in": 200, "out": 5, "hash_ids": [1, 2, 3]}]}"#
        .replace('\n', " ");
    let (trace, reader) = trace(&[&line, &line]);
    assert_eq!((reader.dialect(), trace.tokens_per_id()), (Some("weka"), Ok(64)));
    let expected =
        [vec![], vec![(0, 1_500_000)], vec![(1, 500_000)], vec![(0, 6_000_000), (2, 2_000_000)]];
    let delays = |request: &TraceRequest| {
        let after = request.wait.iter().flat_map(|wait| &wait.after);
        after.map(|it| (it.request, it.delay)).collect::<Vec<_>>()
    };
    assert_eq!(trace.requests()[..4].iter().map(delays).collect::<Vec<_>>(), expected);
    assert_eq!(reader.notes(), [""; 0]);
    let (early, reader) = self::trace(&[&line.replace("8.0", "5.5")]);
    assert_eq!(delays(&early.requests()[3]), [(0, 3_500_000), (2, 0)]);
    assert_eq!(reader.notes().len(), 1);
    let tokens = |index: usize| trace.requests()[index].prompt.token(0, 64);
    assert_eq!(tokens(0), tokens(3));
    assert_ne!(tokens(0), tokens(4), "ids of another conversation are other blocks");
    let text = |line: &str| line.replace("[1, 2", r#"["1", 2"#);
    let (texts, _) = self::trace(&[&text(&line), &text(&line)]);
    assert_ne!(texts.requests()[0].prompt.token(0, 64), texts.requests()[4].prompt.token(0, 64));
    let shared = line.replace("local", "global");
    let (shared, _) = self::trace(&[&shared, &shared]);
    assert_eq!(shared.requests()[0].prompt.token(0, 64), shared.requests()[4].prompt.token(0, 64));
    assert_eq!(error(&[&line.replace("local", "turn")]).field, "hash_id_scope");
    let broken = line.replace(r#""in": 200"#, r#""in": 0"#);
    assert_eq!(error(&[&line, &broken]).field, "in");
    let contradicting = line.replace("[1, 2, 3]", "[1]");
    assert_eq!(error(&[&line, &contradicting]).field, "hash_ids");
    let many = line.replace(r#""in": 64"#, r#""in": 1"#).replace("[9], \"api", "[9, 8], \"api");
    assert_eq!(error(&[&many]).message, "has 2 ids; 1 tokens need 1 to 1");
}

#[test]
fn tables_have_a_header_and_no_ids() {
    let azure = ["TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:17:03.5,4808,10"];
    let (read, reader) = trace(&azure);
    assert_eq!((reader.dialect(), read.requests().len()), (Some("azure"), 1));
    assert_eq!(read.requests()[0].num_known_tokens(512), 0);
    assert_eq!(read.requests()[0].arrival, Some(1_700_158_623_500_000));
    assert!(reader.notes()[0].contains("prompts share nothing"));
    let burst = [
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
        "5,a,1,ChatGPT,472,18,490,Conversation log",
        "45.5,a,1,\"GPT, 4\",1087.0,3,1090,API log",
        "46,a,1,GPT,1087,0,1087,API log",
    ];
    let (read, reader) = trace(&burst);
    let failed = "left out: 1 requests that failed, without output tokens";
    assert_eq!((reader.dialect(), reader.notes()[1].as_str()), (Some("burstgpt"), failed));
    let seen = read.requests().iter().map(|it| (it.arrival, it.prompt.len(), it.output_length));
    assert_eq!(seen.collect::<Vec<_>>(), [(Some(5_000_000), 472, 18), (Some(45_500_000), 1087, 3)]);
    assert_eq!(read.num_follow_ups(), Some(1));
    for (row, field) in [
        ("5,a,1,ChatGPT,0,18,490,x", "Request tokens"),
        ("5,a,1,ChatGPT,4,many,490,x", "Response tokens"),
        ("noon,a,1,ChatGPT,4,1,490,x", "Timestamp"),
        ("5,a,1,ChatGPT,4,1", ""),
    ] {
        assert_eq!(error(&[burst[0], row]).field, field, "{row}");
    }
    let images = ["TIMESTAMP,NumImages,ContextTokens,GeneratedTokens"];
    assert!(trace(&images).1.notes()[0].contains("column 'NumImages' is not used"));
    let refused = error(&["2023-11-16 18:17:03.5,4808,10"]);
    assert!(refused.message.contains("nor the header of a table"));
}

#[test]
fn results_of_vllm_bench_have_lengths() {
    let line = r#"{"input_lens": [7, 5], "output_lens": [3, 0], "start_times": [10.5, 11.0]}"#;
    let (read, _) = trace(&[line]);
    let arrivals: Vec<_> = read.requests().iter().map(|request| request.arrival).collect();
    assert_eq!(arrivals, [Some(0), Some(500_000)]);
    for (line, field) in [
        (r#"{"request_throughput": 3.0}"#, "input_lens"),
        (r#"{"prompt": "hello", "output_tokens": 3}"#, "prompt"),
        (r#"[{"id": "a", "conversations": [{"from": "human", "value": "hi"}]}]"#, "conversations"),
        (r#"{"session_id": "a", "input": [{"role": "user"}], "pre_gap": 0.5}"#, "input"),
    ] {
        let refused = error(&[line]);
        assert_eq!(refused.field, field);
    }
}

#[test]
fn prompts_that_hold_only_what_is_new_are_counted() {
    let row = |session: &str, ids: &str| {
        let length = 16 * ids.split(',').count();
        format!(
            r#"{{"session_id": "{session}", "block_size": 16, "input_length": {length},
                "output_length": 1, "hash_ids": [{ids}]}}"#
        )
    };
    let of = |rows: [(&str, &str); 4]| {
        let lines = rows.map(|(session, ids)| row(session, ids));
        trace(&lines.each_ref().map(String::as_str)).0.num_restarts()
    };
    assert_eq!(of([("a", "1,2"), ("b", "7,8"), ("a", "3,4"), ("b", "7,8,9")]), Ok((1, 2)));
    let whose_end_changes = [("a", "1,2,3"), ("a", "1,2,4,5"), ("a", "1,6"), ("a", "1")];
    assert_eq!(of(whose_end_changes), Ok((0, 3)));
}

#[test]
fn lines_with_a_chat_id_are_qwen_bailians() {
    let request = read(
        r#"{"chat_id": 5, "parent_chat_id": -1, "timestamp": 2.5, "input_length": 20,
            "output_length": 3, "type": "text", "turn": 1, "hash_ids": [0, 1]}"#,
    );
    assert_eq!((request.arrival, request.tokens_per_id), (Some(2_500_000), Some(16)));
}
