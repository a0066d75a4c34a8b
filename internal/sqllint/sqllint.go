// Package sqllint holds the portability rules of Hapax's SQL.
//
// Owns the rules: a token scan of migrations and queries, questions to the catalogue of a migrated database, and their listed exceptions.
// Never parses SQL grammar, never changes a database.
// Read next: internal/store, whose files it judges.
package sqllint

import "github.com/hapaxpay/hapax/internal/devdb"

// Hapax are the project's rules. Every exception says why it is one.
var Hapax = Rules{
	Service: devdb.RoleService,
	Console: devdb.RoleConsole,
	GlobalTables: map[string]string{
		"database_epoch":   "one row for the whole database: which server this is (A8)",
		"schema_migration": "one row for each migration of the whole database",
		"event_sink":       "a few rows: the sinks that take every merchant's events",
		"migration_lease":  "one row, whose lock is the right to migrate: no advisory lock is needed",
	},
	GlobalIndexes: map[string]string{},
	Triggers:      map[string]string{},
	AppendOnly: map[string]string{
		"ledger_entry":           "books are corrected by new rows (section 11)",
		"evidence":               "an observation is never revised (section 8)",
		"event":                  "the same bytes each time (V1); delivery state lives elsewhere (V2)",
		"history":                "what was dropped leaves a trace (E4)",
		"decision":               "who decided what and why (section 14)",
		"payment_intent_version": "the identity of a command is kept for ever (K8)",
		"joined_command":         "the identity of a command is kept for ever (K8)",
		"endpoint_command":       "the identity of a command is kept for ever (K8)",
	},
}
