//! Columns or fields that the caller names: `input=ContextTokens,output=GeneratedTokens`.

use thiserror::Error;

use super::records::{LOG, Records, Role, Roles};
use super::{Dialect, Form};
use crate::trace::times::{Scale, Unit};

/// The records whose fields the caller names.
pub const COLUMNS: Dialect = Dialect {
    name: "columns",
    about: "a table or JSON lines whose columns or fields --columns names",
    sign: "--columns",
    example: "",
    form: Form::Records(Records {
        scale: Scale::Default(Unit::Milliseconds),
        has_record: |_| true,
        table: Some(&[]),
        ..LOG
    }),
};

/// An error about columns that a caller named.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ColumnsError(String);

/// Returns the roles of named columns.
pub fn roles_of(columns: Vec<(String, String)>) -> Result<Roles, ColumnsError> {
    let mut roles = Roles::default();
    for (role, column) in columns {
        let names = || Role::ALL.map(Role::name).join(", ");
        let found = Role::named(&role);
        let found = found.ok_or_else(|| {
            ColumnsError(format!("columns has {role:?}; it can have {}", names()))
        })?;
        if column.is_empty() {
            return Err(ColumnsError(format!("columns names no column for {role}")));
        }
        roles.0[found as usize] = vec![column];
    }
    let is_missing = |role: &Role| roles.names(*role).is_empty();
    if let Some(role) = [Role::Input, Role::Output].into_iter().find(is_missing) {
        let role = role.name();
        return Err(ColumnsError(format!("columns has no {role}; it needs input and output")));
    }
    if !is_missing(&Role::Prefix) && is_missing(&Role::Session) {
        return Err(ColumnsError(
            "columns has a prefix but no session; a prefix needs the session".into(),
        ));
    }
    Ok(roles)
}
