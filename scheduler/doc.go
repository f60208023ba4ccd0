// Package scheduler holds schedulers for engine.Config.NewScheduler: those that are built
// in, by the names that people know from ms-swift, a user's own program or server, and
// gym environments.
//
//	scheduler.go   Open: a name becomes a Set, which gives each trajectory its own
//	tips.go        math_tip_trick, math_tip_trick_multi_turn, thinking_tips_scheduler
//	gym.go         gym_scheduler, and what an environment is
//	openenv.go     openenv_scheduler: an environment that is a server of OpenEnv
//	frozen_lake.go the environment that is built in
//	program.go     exec:CMD and http://…: who is asked
//	wire.go        what goes over the wire: docs/scheduling.md
package scheduler
