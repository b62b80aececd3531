//! BurstGPT's tables: lengths and times of requests; later parts also have conversations. Source:
//! <https://github.com/HPMLL/BurstGPT>

use super::records::{LOG, Records, Role};
use super::{Dialect, Form};
use crate::trace::times::{Scale, Unit};

pub const BURSTGPT: Dialect = Dialect {
    name: "burstgpt",
    about: "BurstGPT's tables: times in seconds and lengths; failed requests are left out",
    sign: "a header with Request tokens and Response tokens",
    example: "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
              5,ChatGPT,472,18,490,Conversation log\n\
              45,GPT-4,1087,230,1317,API log\n",
    form: Form::Records(Records {
        roles: &[
            (Role::Time, &["Timestamp"]),
            (Role::Input, &["Request tokens"]),
            (Role::Output, &["Response tokens"]),
            (Role::Session, &["Session ID"]),
        ],
        scale: Scale::Default(Unit::Seconds),
        has_record: |fields| {
            fields.contains_key("Request tokens") && fields.contains_key("Response tokens")
        },
        table: Some(&[]),
        has_known_columns: true,
        unused: &["Elapsed time", "Model", "Total tokens", "Log Type"],
        fails_without_output: true,
        ..LOG
    }),
};
