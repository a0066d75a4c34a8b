/* The direct flow as a model for Spin: one payment intent, NP payments, NW workers, one acquirer.
 *
 * One atomic block is one transaction, one step of the acquirer, or one moment of time. A pause of any length needs no code: a
 * worker may rest before any of its steps for as long as everything else goes on. A crash forgets what the worker knew.
 * A request that left may be executed at any later moment, until the flight time has passed (premise 3).
 *
 * What must hold (the numbers are those of docs/protocol.md):
 *   I-1   the acquirer moves money at most once               assert in move()
 *   I-3   what is final is never changed; paid is told once   assert in pay(), refuse()
 *   I-4   no fact is lost, whoever brought it                 assert in record()
 *   I-7   what is paid has moved money                        Auditor
 *   I-16  no money under a refusal whose gate is open         Auditor
 *   P7    no permit beside money that is on record            assert in grant()
 *
 * docs/model.md says what the runs found, and what is not modelled.
 */

/* ---- bounds ---- */
#ifndef NP
#define NP 2       /* payments of the intent */
#endif
#ifndef NW
#define NW 2       /* workers: requests of clients, replicas, sweeps */
#endif
#ifndef NS
#define NS 2       /* requests on the wire at once */
#endif
#ifndef SENDS
#define SENDS 2    /* permits for one payment (S6) */
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef FAULTS
#define FAULTS 1   /* requests lost, answers of a front layer, refused connections */
#endif

/* ---- the acquirer: what its contract declares, and what it does ---- */
#define KEYS      1   /* keys, and refusals are remembered for them */
#define FORGETS   2   /* keys, but a refused request may be executed when it is repeated */
#define REFERENCE 3   /* no keys; a reference is accepted once */
#define NOTHING   4   /* neither: each request that arrives is executed */
#define LIES      5   /* declares KEYS, behaves like FORGETS: premise 2 is broken, so I-1 and I-16 are not asked */
#ifndef ACQ
#define ACQ KEYS
#endif
#define repeatable (ACQ != NOTHING)
#define remembers  (ACQ == KEYS || ACQ == LIES)
#define final404   (ACQ != REFERENCE && ACQ != NOTHING)   /* "not found" is final after lag and flight */
#ifndef WINDOW
#define WINDOW 0   /* 1: keys are forgotten at the end of their window */
#endif

/* ---- the rules; -D<rule>=0 takes one away ---- */
#ifndef UNIQUE
#define UNIQUE 1       /* P1, K1: the index decides, no look before */
#endif
#ifndef GATE
#define GATE 1         /* P6: the next payment waits until the refusal is the last word */
#endif
#ifndef ONEKEY
#define ONEKEY 1       /* A1: one acquirer key for all calls of a payment */
#endif
#ifndef GUARD
#define GUARD 1        /* P2: a transition names the state that it expects */
#endif
#ifndef FENCE
#define FENCE 1        /* K3: an inference needs the current fence */
#endif
#ifndef PERMITFENCE
#define PERMITFENCE 1  /* A0: a permit needs the current fence */
#endif
#ifndef FACTS
#define FACTS 1        /* K3: a fact needs no fence */
#endif
#ifndef EVIDENCE
#define EVIDENCE 1     /* E2: money after a refusal opens a conflict */
#endif
#ifndef LEASE
#define LEASE 1        /* K2: a takeover waits for the end of the lease */
#endif
#ifndef LOOKUP
#define LOOKUP 1       /* section 7: who takes over asks before it sends */
#endif
#ifndef LAG
#define LAG 1          /* section 7: "not found" means something only after lag and flight */
#endif
#ifndef ASKED
#define ASKED 1        /* section 4: a lookup counts as of when it was asked */
#endif
#ifndef UNKNOWN
#define UNKNOWN 1      /* section 5: an answer without proof is no refusal */
#endif
#ifndef ONLYSEND
#define ONLYSEND 1     /* O1: a rejection proves nothing but of the only send that left */
#endif
#ifndef COUNTED
#define COUNTED 1      /* O1: sends are counted in the database, not in the process */
#endif
#ifndef NOTSENT
#define NOTSENT 1      /* O1: "not sent" proves something only if no permit sent a byte */
#endif
#ifndef NOREPEAT
#define NOREPEAT 1     /* section 6: neither keys nor references, so never a second send */
#endif
#ifndef NOHIDDEN
#define NOHIDDEN 1     /* A2: the transport never repeats by itself */
#endif
#ifndef CUTOFF
#define CUTOFF 1       /* A0, A6: no permit after the cut-off */
#endif
#ifndef MARGIN
#define MARGIN 1       /* A7: the cut-off comes before the end of the window */
#endif
#ifndef FRESH
#define FRESH 1        /* A5: no byte later than the freshness of its permit */
#endif
#ifndef REVIEW
#define REVIEW 1       /* O2: what stays unknown goes to a person, age refuses nothing */
#endif
#ifndef P7CLAIM
#define P7CLAIM 1      /* P7: no new payment beside money */
#endif
#ifndef P7PERMIT
#define P7PERMIT 1     /* P7: no permit beside money */
#endif

mtype:status = { NONE, OPEN, PAID, DECLINED, FAILED };   /* OPEN: pending and unknown */
mtype:answer = { SILENT, TAKEN, REFUSED, REJECTED, UNSENT, UNPROVEN, NOTFOUND, GIVEUP };
mtype:memory = { ABSENT, EXECUTED, DENIED };

/* ---- our database ---- */
mtype:status st[NP];
byte fence[NP];      /* who claimed last: no worker holds an old fence and a new one at once, so the number is not needed */
bit  lease[NP];      /* not over */
byte sends[NP];      /* permits */
byte unsent[NP];     /* permits of which no byte left */
bit  gate[NP];       /* open for the next payment */
bit  review[NP];
bit  conflict[NP];
byte paidEvents;

/* ---- the acquirer and the wire ---- */
#define NK (NP*SENDS)                /* keys; only a broken ONEKEY uses more than NP */
mtype:memory mem[NK];
bit  moved[NP];                      /* the acquirer's register */
byte movements;
byte reqKey[NS];                     /* key + 1 of a request on the wire, 0: free */
byte reqFrom[NS];                    /* the worker that still waits for its answer */
mtype:answer reply[NW+1];

/* ---- time ---- */
byte permit[NW+1];                   /* key + 1 of a permit that has not been used */
bit  fresh[NW+1];
bit  quiet[NK];                      /* lag and flight have passed since the last permit */
bit  cut[NK], forgotten[NK];
byte crashes, faults;

#if ONEKEY
#define KEY(p) (p)
#else
#define KEY(p) ((p) + NP*(sends[p]-1))
#endif
#define refused(p)  (st[p] == DECLINED || st[p] == FAILED)
#define money(p)    (st[p] == PAID || conflict[p])
#define other(p)    (NP-1-(p))       /* of at most two payments */
#define beside(p)   (NP > 1 && money(other(p)))
#define onWire(k)   (reqKey[0] == (k)+1 || reqKey[NS-1] == (k)+1)   /* NS <= 2 */
#define current(p)  (fence[p] == me)
#define only(p)     ((COUNTED && sends[p]-unsent[p] == 1) || (!COUNTED && mine == 1))

/* ---- what the acquirer does ---- */
inline move(k) {
	mem[k] = EXECUTED; moved[(k)%NP] = 1;
	if :: movements < 2 -> movements++ :: else fi;
	assert(movements <= 1 || ACQ == LIES)                           /* I-1 */
}
inline respond(s, what) {
	if :: reqFrom[s] != 0 -> reply[reqFrom[s]] = what :: else fi;
	reqKey[s] = 0; reqFrom[s] = 0
}
#define executes(k) (mem[k] == ABSENT || ACQ == NOTHING || forgotten[k] || (mem[k] == DENIED && ACQ != KEYS))

proctype Acquirer() {
	byte s, k;
end:	do
	:: atomic { reqKey[0] != 0 || reqKey[NS-1] != 0 ->
		if :: reqKey[0] != 0 -> s = 0 :: NS > 1 && reqKey[NS-1] != 0 -> s = NS-1 fi;
		k = reqKey[s]-1;
		if
		:: faults < FAULTS -> faults++; respond(s, UNPROVEN)     /* lost, 5xx */
		:: faults < FAULTS -> faults++; respond(s, REJECTED)     /* a front layer: nothing was executed by this request */
		:: executes(k) -> move(k); respond(s, TAKEN)
		:: executes(k) -> if :: mem[k] == ABSENT -> mem[k] = DENIED :: else fi; respond(s, REFUSED)
		:: !executes(k) && ACQ == REFERENCE -> respond(s, UNPROVEN)   /* "duplicate reference" */
		:: !executes(k) && ACQ != REFERENCE && mem[k] == EXECUTED -> respond(s, TAKEN)
		:: !executes(k) && ACQ != REFERENCE && mem[k] == DENIED -> respond(s, REFUSED)
		fi;
		s = 0; k = 0 }
	od
}

/* ---- what time does ---- */
proctype Time() {
	byte p, w;
end:	do
	:: atomic { lease[0] -> lease[0] = 0 }
	:: atomic { lease[NP-1] -> lease[NP-1] = 0 }
	:: atomic { /* flight passes: permits not used by now are stale */
		if
		:: st[0] != NONE && !quiet[KEY(0)] && !onWire(KEY(0)) -> p = 0
		:: NP > 1 && st[NP-1] != NONE && !quiet[KEY(NP-1)] && !onWire(KEY(NP-1)) -> p = NP-1
		fi;
		quiet[KEY(p)] = 1; w = 1;
		do
		:: w <= NW -> if :: FRESH && permit[w] == KEY(p)+1 -> fresh[w] = 0 :: else fi; w++
		:: else -> break
		od;
		p = 0; w = 0 }
#if WINDOW
	:: atomic { st[0] != NONE && !cut[0] -> cut[0] = 1 }
	:: atomic { cut[0] && !forgotten[0] && (quiet[0] || !MARGIN) -> forgotten[0] = 1 }
#endif
	od
}

/* ---- transitions ---- */
inline close(p)  { fence[p] = 0; lease[p] = 0; review[p] = 0 }
inline pay(p) {
	assert(!refused(p)); st[p] = PAID; close(p);
	paidEvents++; assert(paidEvents <= 1)                           /* I-3 */
}
inline refuse(p, to, open) {
	assert(st[p] == OPEN);                                          /* I-3 */
	st[p] = to; gate[p] = open; close(p)
}
inline grant(p) {
	assert(!beside(p));                                             /* P7 */
	sends[p]++; permit[me] = KEY(p)+1; fresh[me] = 1; quiet[KEY(p)] = 0
}

/* The sweep opens gates: when nothing can arrive any more, it asks once again (P6 d). */
proctype Gates() {
	byte p;
end:	do
	:: atomic {
		if
		:: refused(0) && !gate[0] && !conflict[0] && quiet[KEY(0)] -> p = 0
		:: NP > 1 && refused(NP-1) && !gate[NP-1] && !conflict[NP-1] && quiet[KEY(NP-1)] -> p = NP-1
		fi;
		if
		:: mem[KEY(p)] == EXECUTED -> conflict[p] = EVIDENCE
		:: mem[KEY(p)] == DENIED || (mem[KEY(p)] == ABSENT && final404) -> gate[p] = 1
		:: else                                                     /* a person */
		fi;
		p = 0 }
	od
}

/* Record is one transaction. Facts are applied whoever brings them; an inference needs the fence and an open payment. */
#define may      ((current(p) || !FENCE) && (st[p] == OPEN || !GUARD))
#define mayFact  ((FACTS || current(p)) && (st[p] == OPEN || !GUARD))
inline record() {
	if
	:: r == TAKEN ->
		if
		:: mayFact -> pay(p)
		:: !mayFact && refused(p) && EVIDENCE -> conflict[p] = 1
		:: else
		fi;
		assert(money(p))                                        /* I-4 */
	:: r == REFUSED && ((remembers && mayFact) || may) -> refuse(p, DECLINED, (remembers || only(p)))
	:: r == REJECTED && may && (only(p) || !ONLYSEND) -> refuse(p, FAILED, 1)
	:: r == UNSENT && may ->
		unsent[p]++;
		if :: sends[p] == unsent[p] || !NOTSENT -> refuse(p, FAILED, 1) :: else fi
	:: r == NOTFOUND && may -> refuse(p, FAILED, 1)
	:: r == GIVEUP && may -> if :: REVIEW -> review[p] = 1 :: else -> refuse(p, FAILED, 1) fi
	:: r == UNPROVEN && may && !UNKNOWN -> refuse(p, FAILED, 1)
	:: else                                                         /* unknown, or a stale owner */
	fi;
	if :: current(p) -> lease[p] = 0 :: else fi
}

/* ---- a worker: claim or take over, ask, send, record ---- */
inline forget() { p = 0; r = SILENT; asked = 0; mine = 0; permit[me] = 0; fresh[me] = 0; reply[me] = SILENT }
inline deaf() {  /* nobody waits for the answer any more */
	if :: reqFrom[0] == me -> reqFrom[0] = 0 :: else fi;
	if :: reqFrom[NS-1] == me -> reqFrom[NS-1] = 0 :: else fi
}
inline claim(n)  { p = n; st[p] = OPEN; fence[p] = me; lease[p] = 1; grant(p) }
inline takeover(n) { p = n; fence[p] = me; lease[p] = 1 }
inline put(s, from) { reqKey[s] = permit[me]; reqFrom[s] = from }
#define mayRepeat (!review[p] && (repeatable || !NOREPEAT) && (!cut[KEY(p)] || !CUTOFF) && !(P7PERMIT && beside(p)))

proctype Worker(byte me) {
	byte p, mine; mtype:answer r; bit asked;
	r = SILENT;
end:	if
	:: atomic { UNIQUE && st[0] == NONE -> claim(0) }; goto send
	:: atomic { UNIQUE && NP > 1 && refused(0) && (gate[0] || !GATE) && !(P7CLAIM && money(0)) && st[NP-1] == NONE -> claim(NP-1) };
		goto send
	:: !UNIQUE && (st[0] == NONE || (refused(0) && gate[0])) ->     /* the look before */
		atomic {
			if
			:: st[0] == NONE -> claim(0); goto send
			:: st[0] != NONE && !money(0) && st[NP-1] == NONE -> claim(NP-1); goto send
			:: else -> goto end
			fi }
	:: atomic { st[0] == OPEN && (!lease[0] || !LEASE) && fence[0] != me -> takeover(0) }; goto ask
	:: atomic { st[0] == OPEN && !lease[0] && fence[0] == me -> takeover(0) }; goto ask
	:: atomic { NP > 1 && st[NP-1] == OPEN && (!lease[NP-1] || (!LEASE && fence[NP-1] != me)) -> takeover(NP-1) }; goto ask
	fi;

ask:	/* the lookup lags until it is quiet; where "not found" is not final it may always say that */
	atomic {
		asked = quiet[KEY(p)];
		if
		:: LOOKUP && mem[KEY(p)] == EXECUTED -> r = TAKEN
		:: LOOKUP && mem[KEY(p)] == DENIED -> r = REFUSED
		:: mem[KEY(p)] == ABSENT || !asked || !final404 || !LOOKUP -> r = NOTFOUND
		fi };
	if
	:: atomic { crashes < CRASHES -> crashes++; forget() }; goto end
	:: atomic { r != NOTFOUND -> goto note }
	:: atomic { r == NOTFOUND ->
		if
		:: final404 && LOOKUP && (asked || !LAG || (!ASKED && quiet[KEY(p)])) -> goto note
		:: else ->
			if
			:: (!current(p) && PERMITFENCE) || st[p] != OPEN || review[p] -> forget(); goto end
			:: else ->
				if
				:: mayRepeat && sends[p] < SENDS -> grant(p); r = SILENT; asked = 0; goto send
				:: !mayRepeat && (beside(p) || (asked && !final404)) -> r = GIVEUP; goto note
				:: else -> forget(); goto end           /* wait */
				fi
			fi
		fi }
	fi;

send:	/* the pause that no lease sees is here */
	if
	:: atomic { crashes < CRASHES -> crashes++; forget() }; goto end
	:: atomic { !fresh[me] || faults < FAULTS ->                    /* stale at the socket, or no connection */
		if :: fresh[me] -> faults++ :: else fi; permit[me] = 0; fresh[me] = 0; r = UNSENT; goto note }
	:: atomic { fresh[me] && (reqKey[0] == 0 || reqKey[NS-1] == 0) ->
		if
		:: !NOHIDDEN && NS > 1 && reqKey[0] == 0 && reqKey[NS-1] == 0 -> put(0, 0); put(NS-1, me)
		:: reqKey[0] == 0 -> put(0, me)
		:: reqKey[0] != 0 -> put(NS-1, me)
		fi;
		mine++; permit[me] = 0; fresh[me] = 0 }
	fi;
	if
	:: atomic { reply[me] != SILENT -> r = reply[me]; reply[me] = SILENT }
	:: atomic { reply[me] == SILENT -> r = UNPROVEN; deaf() }       /* time-out, at any moment */
	:: atomic { crashes < CRASHES -> crashes++; deaf(); forget() }; goto end
	fi;

note:	atomic { record(); forget(); goto end }
}

proctype Auditor() {
end:	atomic {
		(moved[0] && refused(0) && gate[0] && ACQ != LIES) || (moved[NP-1] && refused(NP-1) && gate[NP-1] && ACQ != LIES) ||
		(st[0] == PAID && !moved[0]) || (st[NP-1] == PAID && !moved[NP-1]) -> assert(false) }   /* I-7, I-16 */
}

/* -DREACH=n: a witness that a rare branch is reached, so that a run without errors is no empty one. It must fail. */
#ifndef REACH
#define witness false
#elif REACH == 1
#define witness (st[NP-1] == PAID)                     /* refused, and paid by the next payment */
#elif REACH == 2
#define witness (st[0] == PAID && sends[0] == SENDS)   /* paid after a repeat */
#elif REACH == 3
#define witness (conflict[0] && !gate[0])              /* money found after a refusal */
#elif REACH == 4
#define witness (review[0])
#elif REACH == 5
#define witness (st[0] == PAID && forgotten[0])        /* found after the acquirer forgot the key */
#endif
proctype Witness() {
end:	atomic { witness -> assert(false) }
}

init {
	byte i;
	atomic {
		do :: i < NP -> st[i] = NONE; i++ :: else -> break od; i = 0;
		do :: i < NK -> mem[i] = ABSENT; i++ :: else -> break od; i = 0;
		do :: i <= NW -> reply[i] = SILENT; i++ :: else -> break od; i = 0;
		run Acquirer(); run Time(); run Gates(); run Auditor(); run Witness(); run Worker(1);
#if NW > 1
		run Worker(2);
#endif
	}
}
