//! Azure's tables of LLM inference: lengths and times of requests.
//! Source: <https://github.com/Azure/AzurePublicDataset>

use super::records::{LOG, Records, Role};
use super::{Dialect, Form};
use crate::trace::times::{Scale, Unit};

pub const AZURE: Dialect = Dialect {
    name: "azure",
    about: "Azure's public tables of LLM requests: times and lengths, no ids",
    sign: "a header with ContextTokens and GeneratedTokens",
    example: "TIMESTAMP,ContextTokens,GeneratedTokens\n\
              2023-11-16 18:17:03.9799600,4808,10\n\
              2023-11-16 18:17:04.0319600,3180,8\n",
    form: Form::Records(Records {
        roles: &[
            (Role::Time, &["TIMESTAMP"]),
            (Role::Input, &["ContextTokens"]),
            (Role::Output, &["GeneratedTokens"]),
        ],
        scale: Scale::Default(Unit::Milliseconds),
        has_record: |fields| {
            fields.contains_key("ContextTokens") && fields.contains_key("GeneratedTokens")
        },
        table: Some(&[]),
        has_known_columns: true,
        ..LOG
    }),
};
