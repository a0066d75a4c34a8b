package sim

import (
	"math/rand/v2"
	"time"

	"github.com/hapaxpay/hapax/internal/operation"
)

// Swarm makes a world from a seed. Each world has its own mix of troubles, and many are left out of each, so that rare
// combinations get room.
func Swarm(seed uint64) Config {
	r := rand.New(rand.NewPCG(seed, streamSwarm))
	some := func(most int) int { // 0 in half of the worlds
		if r.IntN(2) == 0 {
			return 0
		}
		return 1 + r.IntN(most)
	}
	c := Config{Seed: seed, Orders: 1 + r.IntN(4), Replicas: 1 + r.IntN(3), Engine: operation.Default(), Sweep: 2 * time.Second}
	for range 1 + r.IntN(2) {
		c.Merchant = append(c.Merchant, Vary(Profiles[r.IntN(len(Profiles))], r.Uint64()))
	}
	c.Hazards = Hazards{Crash: some(40), Pause: some(30), Away: some(60), Slow: some(60), Again: some(100), Lost: some(60),
		ClockOffset: time.Duration(some(600)) * time.Second, DatabaseClockOffset: time.Duration(some(7200)) * time.Second}
	c.Mischief = Mischief{Unreachable: some(150), LostRequest: some(200), LateRequest: some(200), LostAnswer: some(250), Reset: some(150),
		SlowAnswer: some(100), FrontReject: some(100), FrontError: some(100), BackError: some(100), SlowBooking: some(150),
		Processes: some(100), Declines: some(500), LookupDown: some(300),
		ActFails: some(150), BankFails: some(300), ByHand: some(150), Chargeback: some(150)}
	if r.IntN(20) == 0 {
		c.Mischief.WrongAmount = 200
	}
	if r.IntN(10) == 0 {
		c.Mischief.Mistake = 200
	}
	if r.IntN(5) == 0 {
		c.Mischief.DarkFrom = time.Duration(r.IntN(60)) * time.Second
		c.Mischief.DarkTo = c.Mischief.DarkFrom + time.Duration(1+r.IntN(40*60))*time.Minute
	}
	c.Habits = Habits{Twice: some(300), LoseKey: some(100), LeaveEarly: some(200), OtherParameters: some(50), Amend: some(50),
		TwoSteps: some(500), NewTry: 800, LongPause: some(150), Hosted: some(600), Manual: some(700), Step: some(300),
		Change: 100 + some(800), EarlyChange: some(100), WrongCode: some(300), CancelCode: some(500), Compensate: some(999)}
	c.Trouble = time.Duration(1+r.IntN(12)) * time.Hour
	if r.IntN(4) == 0 {
		c.Trouble += 48 * time.Hour
	}
	c.Late = r.IntN(8) == 0
	c.Mischief.HookLost, c.Mischief.HookTwice, c.Mischief.HookLate = some(300), some(500), some(400)
	return c
}

const streamSwarm = 0xd6e8feb86659fd93
