//! Rules of older releases of vLLM, one for each decision that they make differently.

macro_rules! older_rules {
    ($($(#[$meta:meta])* $name:ident,)+) => {
        /// Rules of older releases of vLLM. All are off in the newest release.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct OlderRules {
            $($(#[$meta])* pub $name: bool,)+
        }

        impl OlderRules {
            /// The names of all rules.
            pub const NAMES: &[&str] = &[$(stringify!($name),)+];

            /// Switches a rule on. Returns whether there is a rule of this name.
            pub fn switch_on(&mut self, name: &str) -> bool {
                match name {
                    $(stringify!($name) => self.$name = true,)+
                    _ => return false,
                }
                true
            }
        }
    };
}

older_rules! {
    /// The end of a prompt inside a block is cached up to its last token, which a repeated prompt
    /// computes again and so cannot hit.
    caches_unreachable_ends,
    /// A state inside a chunk is at the last hash boundary that leaves a token to compute, also
    /// where hits end at larger boundaries or drop a block.
    places_checkpoints_by_hash,
    /// A state inside a chunk is cached unless only the ends of prompts are retained.
    caches_all_checkpoints,
    /// A step with a state inside its chunk gets new blocks for drafts, and the ones before stay
    /// where they are.
    renews_drafts_at_checkpoints,
    /// The end of a prompt is cached as such only inside a block of states.
    caches_state_ends_inside_blocks,
    /// A hit that drops a block does not look at a block beyond the longest hit that was asked for,
    /// and not at all where a group is looked up by itself.
    bounds_proofs_by_hit,
}

impl OlderRules {
    /// Returns the rules that are switched on by these names, or the first unknown name.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, &'a str> {
        let mut rules = Self::default();
        match names.into_iter().find(|name| !rules.switch_on(name)) {
            None => Ok(rules),
            Some(unknown) => Err(unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_has_its_name() {
        let mut seen = vec![OlderRules::default()];
        for name in OlderRules::NAMES {
            let rules = OlderRules::named([*name]).unwrap();
            assert!(!seen.contains(&rules), "{name}");
            seen.push(rules);
        }
        assert_eq!(OlderRules::named(["no_such_rule"]), Err("no_such_rule"));
        assert_eq!(OlderRules::named([]), Ok(OlderRules::default()));
    }
}
