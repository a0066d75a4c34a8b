package verify

import "fmt"

// link is one reference from a row to another one. kept says that the other one is never deleted: then it must exist.
type link struct {
	child, column, parent string
	kept                  bool
}

// links are the references that must stay inside one merchant, those with a foreign key included.
var links = []link{
	{"payment", "intent_id", "payment_intent", true},
	{"payment_intent_version", "intent_id", "payment_intent", true},
	{"joined_command", "payment_id", "payment", true},
	{"joined_command", "modification_id", "modification", true},
	{"modification", "intent_id", "payment_intent", true},
	{"modification", "payment_id", "payment", true},
	{"modification", "movement_id", "movement", true},
	{"dispute", "intent_id", "payment_intent", true},
	{"dispute", "payment_id", "payment", true},
	{"cancel_code", "payment_id", "payment", true},
	{"operation", "modification_id", "modification", true},
	{"evidence", "modification_id", "modification", true},
	{"operation", "intent_id", "payment_intent", true},
	{"operation", "payment_id", "payment", true},
	{"operation", "follows_id", "operation", false},
	{"movement", "intent_id", "payment_intent", true},
	{"movement", "payment_id", "payment", true},
	{"evidence", "intent_id", "payment_intent", true},
	{"evidence", "payment_id", "payment", true},
	{"evidence", "operation_id", "operation", false},
	{"ledger_entry", "intent_id", "payment_intent", true},
	{"ledger_entry", "payment_id", "payment", true},
	{"event", "intent_id", "payment_intent", true},
	{"event", "payment_id", "payment", true},
	{"history", "intent_id", "payment_intent", true},
	{"history", "payment_id", "payment", true},
	{"history", "operation_id", "operation", false},
	{"review", "intent_id", "payment_intent", true},
	{"review", "payment_id", "payment", true},
	{"review", "operation_id", "operation", false},
	{"review", "movement_id", "movement", true},
	{"decision", "review_id", "review", true},
}

// check asks for rows whose parent is another merchant's, or is not there. Identifiers are unique across merchants, so
// that a join on them alone finds whose the parent is.
func (l link) check() check {
	gone := ""
	if l.kept {
		gone = " OR p.id IS NULL"
	}
	return check{l.child + " points out of its merchant", fmt.Sprintf(`
SELECT c.merchant_id, NULL::uuid, NULL::uuid, '%s.%s ' || c.%s || CASE WHEN p.id IS NULL THEN ' does not exist' ELSE ' is of merchant ' || p.merchant_id END
  FROM %s c LEFT JOIN %s p ON p.id = c.%s
 WHERE c.%s IS NOT NULL AND (p.merchant_id <> c.merchant_id%s)`, l.child, l.column, l.column, l.child, l.parent, l.column, l.column, gone)}
}

var ownerInvariants = []invariant{
	{id: "I-15", statement: "no merchant can read or influence another's data by any key, id or reference (asked is that no row points at another merchant's row)", checks: ownerChecks()},
}

// sharedAccounts finds acquirer accounts that two merchants' rows name. The table of accounts is not read: it holds secrets, and
// the reading role does not see it.
var sharedAccounts = check{"an acquirer account of two merchants", `
SELECT min(merchant_id::text)::uuid, NULL::uuid, NULL::uuid, 'account ' || account_id
  FROM (SELECT merchant_id, account_id FROM payment UNION SELECT merchant_id, account_id FROM operation UNION SELECT merchant_id, account_id FROM modification
        UNION SELECT merchant_id, account_id FROM movement UNION SELECT merchant_id, account_id FROM evidence UNION SELECT merchant_id, account_id FROM dispute
        UNION SELECT merchant_id, account_id FROM routing_rule) a
 WHERE account_id IS NOT NULL GROUP BY account_id HAVING count(DISTINCT merchant_id) > 1`}

func ownerChecks() []check {
	checks := []check{sharedAccounts}
	for _, l := range links {
		checks = append(checks, l.check())
	}
	return checks
}
