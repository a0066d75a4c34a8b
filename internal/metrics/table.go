package metrics

import (
	"fmt"
	"strings"
)

// Names that are used in more than one place.
const (
	settledName    = "hapax_settled_after_lease_seconds"
	alarmsName     = "hapax_alarms_total"
	uncountedName  = "hapax_uncounted_total"
	readableName   = "hapax_backlog_readable"
	unknownName    = "hapax_payments_unknown"
	unknownAgeName = "hapax_payments_unknown_oldest_seconds"
	refundsName    = "hapax_refunds_open"
	refundsAgeName = "hapax_refunds_open_oldest_seconds"
	changesName    = "hapax_changes_unknown"
	changesAgeName = "hapax_changes_unknown_oldest_seconds"
	backName       = "hapax_compensations_open"
	backAgeName    = "hapax_compensations_open_oldest_seconds"
	disputesName   = "hapax_disputes_open"
	reviewsName    = "hapax_reviews_open"
	reviewsAgeName = "hapax_reviews_open_oldest_seconds"
	dueName        = "hapax_operations_due"
	dueAgeName     = "hapax_operations_due_oldest_seconds"
	inProgressName = "hapax_operations_in_progress"
	ledgerHitsName = "hapax_ledger_key_hits_total"
	retriesName    = "hapax_transaction_retries_total"
	commitsName    = "hapax_commits_unknown_total"
	epochsName     = "hapax_database_changes_total"

	deliveredName   = "hapax_delivery_seconds"
	undeliveredName = "hapax_deliveries_failed_total"
	mailsName       = "hapax_mails_total"
	mailUnknownName = "hapax_mails_unknown"
	mailWaitingName = "hapax_mails_not_sent"
	unnumberedName  = "hapax_events_unnumbered"
	unnumAgeName    = "hapax_events_unnumbered_oldest_seconds"
	waitingName     = "hapax_deliveries_waiting"
	waitingAgeName  = "hapax_deliveries_waiting_oldest_seconds"
	failingName     = "hapax_deliveries_failing"
	abandonedName   = "hapax_deliveries_abandoned"
	refusedName     = "hapax_messages_refused_total"
	skewName        = "hapax_messages_skew_seconds"
	messagesName    = "hapax_messages_waiting"
	messagesAgeName = "hapax_messages_waiting_oldest_seconds"
	parkedName      = "hapax_messages_parked"
	unreadableName  = "hapax_messages_unreadable"
)

// counted maps what the engine and the flows count to its metric.
var counted = map[string]string{
	"takeover":        "hapax_takeovers_total",
	"stale_owner":     "hapax_stale_owners_total",
	"stale_inference": "hapax_stale_inferences_total",
	"stale_fact":      "hapax_stale_facts_total",
	"key_reuse":       "hapax_key_reuses_total",
	"repeat_served":   "hapax_repeats_served_total",
	"permit_denied":   "hapax_permits_denied_total",
	"record_failed":   "hapax_records_failed_total",
	"record_repeated": "hapax_records_repeated_total",
	"commit_unknown":  "hapax_claims_unknown_total",

	"message_received": "hapax_messages_received_total",
	"message_repeated": "hapax_messages_repeated_total",
	"message_failed":   "hapax_messages_failed_total",
	"message_stale":    "hapax_messages_stale_total",
}

// Alarms are the reasons of hapax_alarms_total; any other one is counted as "other".
var Alarms = []string{"unapplied_money", "key_used_with_other_parameters", "unreadable_message"}

const otherAlarm = "other"

// scraped are the metrics that Watch reads.
var scraped = []string{readableName, unknownName, unknownAgeName, refundsName, refundsAgeName, changesName, changesAgeName, backName,
	backAgeName, disputesName, reviewsName, reviewsAgeName, dueName, dueAgeName, inProgressName,
	ledgerHitsName, retriesName, commitsName, epochsName, unnumberedName, unnumAgeName, waitingName, waitingAgeName, failingName, abandonedName,
	messagesName, messagesAgeName, parkedName, unreadableName, mailUnknownName, mailWaitingName}

// bySink are those of them that have the label sink.
var bySink = []string{waitingName, waitingAgeName, failingName, abandonedName}

// Row is one metric, as operators read about it.
type Row struct {
	Name    string
	Kind    string // counter, gauge, histogram
	Labels  string // empty: none
	Meaning string
	Alert   string // when somebody must look, and at what
}

// Table lists every metric of the service (PROTOCOL section 15). The two of HTTP are the door's (internal/httpapi).
var Table = []Row{
	{unknownName, "gauge", "", "Payments of which it is not known whether the money was taken.",
		"Above its usual level for 5 minutes: an acquirer does not answer. Look at the acquirer, then at `hapax review list`."},
	{unknownAgeName, "gauge", "", "Age of the oldest payment of which it is not known whether the money was taken, in seconds.",
		"Over 900: lookups do not settle it. Ask `hapax timeline` about it."},
	{refundsName, "gauge", "", "Refunds that were asked for and have no proven result: their amounts are reserved.",
		"Growing for a day: an acquirer takes its time, or does not answer."},
	{refundsAgeName, "gauge", "", "Age of the oldest refund without a proven result, in seconds.",
		"Over the longest processing that the acquirers' contracts declare: ask `hapax timeline` about it."},
	{changesName, "gauge", "", "Captures, cancels, refunds and compensations of which it is not known whether they were done.",
		"Above its usual level for 5 minutes: an acquirer does not answer. Look at the acquirer, then at `hapax review list`."},
	{changesAgeName, "gauge", "", "Age of the oldest capture, cancel, refund or compensation of which it is not known whether it was done, in seconds.",
		"Over 900: lookups do not settle it. Ask `hapax timeline` about it."},
	{backName, "gauge", "", "Compensations that have begun and have no proven result: money that should not have moved is being given back.",
		"Above 0 for an hour: look at `hapax review list`, then at the acquirer."},
	{backAgeName, "gauge", "", "Age of the oldest compensation without a proven result, in seconds.", "Over 3600: ask `hapax timeline` about it."},
	{disputesName, "gauge", "", "Disputes that are open: payers' banks took money back, and have not decided.",
		"None; a jump is a sign of fraud or of a shop in trouble. Answer each within the acquirer's time limit."},
	{settledName, "histogram", "", "Time from the end of the first lease to the final state, for operations that were taken over, in seconds.",
		"The 99th percentile over 300: the sweep or the acquirer's lookup is slow."},
	{"hapax_takeovers_total", "counter", "", "Operations that another worker took over after their lease.",
		"A rate well above usual: workers die, or stand still for longer than a lease."},
	{"hapax_stale_owners_total", "counter", "", "Workers that came back to record and found that somebody else owned the operation.",
		"A rate well above usual: leases are too short for these machines, or they are paused."},
	{"hapax_stale_inferences_total", "counter", "", "Conclusions of workers that had lost their ownership; dropped.", "As for hapax_stale_owners_total."},
	{"hapax_stale_facts_total", "counter", "", "Facts that workers brought after they had lost their ownership; applied.", "None; it explains takeovers."},
	{reviewsName, "gauge", "", "Reviews that wait for a person.", "Above 0 for as long as your people need to look: `hapax review list`."},
	{reviewsAgeName, "gauge", "", "Age of the oldest review that waits for a person, in seconds.", "Over a working day (86400)."},
	{dueName, "gauge", "", "Unfinished operations that are due and that nobody has picked yet.", "Growing for 5 minutes: no worker runs the sweep."},
	{dueAgeName, "gauge", "", "For how long the oldest due operation has been due, in seconds.", "Over 120: no worker runs the sweep, or it is behind."},
	{inProgressName, "gauge", "", "Operations under a lease now.", "None; compare with the number of callers."},
	{"hapax_key_reuses_total", "counter", "", "Requests refused because their idempotency key had been used with other parameters.",
		"Any steady rate: a client makes its keys wrongly. The log names the merchant."},
	{"hapax_repeats_served_total", "counter", "", "Requests answered from what their key already stood for.", "A rate well above usual: clients do not get their answers."},
	{"hapax_permits_denied_total", "counter", "", "Further sends that were not allowed.", "A rate well above usual: look at the reasons in `hapax timeline`."},
	{"hapax_records_failed_total", "counter", "", "Results of calls that could not be recorded because of a fault; the lease ends and the acquirer is asked.",
		"Any: a defect. Read the log of the process."},
	{"hapax_records_repeated_total", "counter", "", "Runs of a record again, because the database was away or did not say whether it had committed.",
		"A rate above 0 for 5 minutes: the database or the way to it is ill."},
	{"hapax_claims_unknown_total", "counter", "", "Claims of which the database did not say whether they had committed.", "As for hapax_records_repeated_total."},
	{alarmsName, "counter", "reason", "What must never happen silently: money that was booked without an order (unapplied_money), an acquirer that says that a key was used with other parameters (key_used_with_other_parameters), a message that was signed by an acquirer and cannot be read (unreadable_message), other.",
		"Any. The log line \"alarm\" names merchant, intent and payment."},
	{"hapax_messages_received_total", "counter", "", "Messages of acquirers that were taken at the door and stored.",
		"A rate of 0 for as long as payments usually cause none: an acquirer sends elsewhere, or nothing."},
	{"hapax_messages_repeated_total", "counter", "", "Further deliveries of messages that were stored before.",
		"A share well above usual: acquirers do not get our answers."},
	{refusedName, "counter", "reason", "Messages that were not proven to come from the acquirer, by reason; nothing of them is stored. too_old and too_new are authentic.",
		"mismatch at a steady rate: a secret was changed on one side only. too_old or too_new: compare the clocks, see hapax_messages_skew_seconds."},
	{skewName, "histogram", "", "How far the signed time of authentic messages was from the database's clock at receipt, either way, in seconds.",
		"The median over 60: a clock is wrong. At 300 messages are refused."},
	{"hapax_messages_failed_total", "counter", "", "Tries to apply a message that failed; it stays due.",
		"A rate above 0 for 15 minutes: see `hapax inbox list` and the log."},
	{"hapax_messages_stale_total", "counter", "", "Results of tries that were dropped because another worker had picked the message meanwhile.",
		"A rate well above usual: workers stand still for longer than a lease."},
	{messagesName, "gauge", "", "Messages that are stored and not applied yet.", "Growing for 5 minutes: no worker runs, or it is behind."},
	{messagesAgeName, "gauge", "", "Age of the oldest message that is stored and not applied yet, in seconds.",
		"Over 300: see `hapax inbox list --state received`."},
	{parkedName, "gauge", "", "Messages that fit no payment yet. They are tried again.", "Above 0 for a day: see `hapax inbox list --state parked`."},
	{unreadableName, "gauge", "", "Messages that cannot be read, and were not given back to be tried again.",
		"Any that is signed: the acquirer's form has changed. See `hapax inbox list --state unreadable`."},
	{ledgerHitsName, "counter", "", "Ledger rows refused because their key existed already.", "Any: a defect upstream of the ledger. Stop and read the log."},
	{retriesName, "counter", "", "Transactions run again after a serialization failure or a deadlock.", "A rate well above usual."},
	{commitsName, "counter", "", "COMMITs whose answer was lost, of every transaction.", "A rate above 0 for 5 minutes: the database or the way to it is ill."},
	{epochsName, "counter", "", "Failovers and restores that this process noticed.", "Any: see `hapax epoch show`."},
	{readableName, "gauge", "", "1 when the figures of the backlog could be read for this scrape, else 0, and they are missing.", "0 for 2 minutes."},
	{uncountedName, "counter", "", "Counts that no metric stands for.", "Any: a defect in this list."},
	{unnumberedName, "gauge", "", "Events that were committed and have no place in their merchant's feed yet.", "Growing for 5 minutes: no worker runs the relay."},
	{unnumAgeName, "gauge", "", "Age of the oldest of them, in seconds.", "Over 30: no worker runs the relay, or it cannot reach the database."},
	{waitingName, "gauge", "sink", "Events that a sink (kafka, nats, mail, endpoint) has not acknowledged yet.", "Growing for 5 minutes: the sink is away, slower than payments, or nobody has it any more. Look at `hapax outbox list`."},
	{waitingAgeName, "gauge", "sink", "Age of the oldest of them, in seconds.", "Over 300 for kafka, nats or mail: the sink is away. For endpoint: a merchant's server is away."},
	{failingName, "gauge", "sink", "Events of which at least one try has failed, and that are tried again.", "Above 0 for an hour for kafka, nats or mail: the sink refuses them; `hapax outbox list --failing` tells why."},
	{abandonedName, "gauge", "sink", "Events that are not tried again by themselves, kept for as long as deliveries are.", "Any increase: look at `hapax outbox list --state abandoned`; `hapax outbox retry` sends them again when the cause is gone."},
	{deliveredName, "histogram", "sink", "Time from the commit of an event to the acknowledgement of a sink, in seconds.", "The median over 1 for kafka or nats: the relay is behind."},
	{mailsName, "counter", "state", "Tries to send a mail, by how they ended: sent, not_sent (tried again), refused, unknown.",
		"A share of refused above its usual level: a mail server does not want our mails. not_sent for 15 minutes: it is away, or does not let us in."},
	{mailUnknownName, "gauge", "", "Mails that may have arrived or not, and are not sent again by themselves.", "Any increase: `hapax mail list --state unknown`, docs/mail.md."},
	{mailWaitingName, "gauge", "", "Mails that are proven not sent, and are tried again.", "Growing for 15 minutes: the mail server is away, or does not let us in."},
	{undeliveredName, "counter", "sink", "Tries that a sink did not acknowledge.", "A rate above 0 for 5 minutes for kafka, nats or mail."},
	{"hapax_http_requests_total", "counter", "route, status, code", "Requests by route, status and problem code.",
		"A share of status 5xx above 0.1 % for 5 minutes."},
	{"hapax_http_request_seconds", "histogram", "route", "Time from the request's headers to its answer, in seconds.",
		"The 99th percentile of POST routes near `HAPAX_ANSWER_WITHIN`: clients get 202 instead of results."},
}

func meaning(name string) string {
	for _, r := range Table {
		if r.Name == name {
			return r.Meaning
		}
	}
	panic("metrics: " + name + " is not in the table") // at start, in every process: a test cannot miss it
}

// Markdown renders docs/metrics.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString("# Metrics\n\nServed at `/metrics` for Prometheus. Written by a test from `internal/metrics/table.go`.\n\n" +
		"No label holds an id, a key or a merchant: the logs do (see PROTOCOL section 15). Gauges are read from the database\n" +
		"on scrape, so every replica tells the same; alert on their maximum, not on their sum. Counters are of one process.\n\n" +
		"| metric | kind | labels | means | alert |\n|---|---|---|---|---|\n")
	for _, r := range Table {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.Name, r.Kind, r.Labels, r.Meaning, r.Alert)
	}
	return b.String()
}
