package archtest

// Rules are the repository's, beside ImportRules.
var Rules = []Rule{
	{"clock", "the engine and what decides take the time as a value: the simulation hands in its own, and a decision can be replayed", noClock(join(engine, pure, []string{"acquirer/signature"}))},
	{"random", "randomness comes from outside, so that one seed replays everything", noGlobalRandom},
	{"goroutine", "who starts goroutines decides their order: that is the simulation's right", noGoroutine},
	{"sql", "all SQL in one place is SQL that the linter sees", sqlOnlyInStore},
	{"size", "a function fits on a screen, a file in a head", sizes},
	{"package comment", "a newcomer learns from three lines what a package owns, what it never does, and where to go on", packageComments},
	{"tests", "a sleeping test is slow or flaky, a silent skip is no test", tests},
	{"floats", "money is integers in minor units", floats},
	{"words", "a clone builds and reads the same everywhere", words},
	{"generated", "generated code belongs to the files that it was made from", staleInputs},
	{"cases", "docs/cases.md claims exactly the tests that exist", cases},
}
