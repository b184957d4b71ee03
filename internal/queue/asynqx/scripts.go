package asynqx

import "fmt"

// AsynqVersion is the version of asynq whose scripts this package replaces.
const AsynqVersion = "v0.26.0"

// action is how the client answers one of asynq's scripts.
type action int

const (
	passOn    action = iota + 1
	heartbeat        // passed on; it writes
	doDequeue
	doNothing // an acknowledgement
	doForward
	doJanitor
	doLapsed
)

// asynqScripts are the scripts that an asynq Server of version AsynqVersion
// sends, by SHA-1. The contract test computes them anew from asynq's source.
var asynqScripts = map[string]struct {
	name   string
	action action
}{
	"a8153319360adc71cdc370107f8ab9786f204765": {"dequeueCmd", doDequeue},
	"1241eaa1c73409baaf1fea0c08d203a4911bda15": {"doneCmd", doNothing},
	"117dca952700588e559c7ace20b925096d587974": {"markAsCompleteCmd", doNothing},
	"65fa409c88198a681c53e0892d8276eca0145694": {"retryCmd", doNothing},
	"9c3b1eb9947ce2ee5304ac013a0a365ec364fd2d": {"archiveCmd", doNothing},
	"f34cbfd11d1fc8019af55b50c447fc68eb8b29e5": {"requeueCmd", doNothing},
	"522b1a6ae66fe79ea2f24a9af58798ab71879035": {"forwardCmd", doForward},
	"49c4326d80c1db9c476da2aa7f4438d03688f82b": {"deleteExpiredCompletedTasksCmd", doJanitor},
	"16988a462595f6ee317be300951533b004f27f5c": {"listLeaseExpiredCmd", doLapsed},
	"7c08714194a1ed81153180b36590c51f1ccd7d42": {"reclaimStateAggregationSetsCmd", passOn},
	"3c8548ad44d0dfcfde50f07ea9271d77f656042c": {"writeServerStateCmd", heartbeat},
	"79cf8dbc80deca37314fdfdeb9fe33a12c9baad7": {"clearServerStateCmd", passOn},
}

// UnknownScriptError is the error of a script of asynq that this version of Tidegate does not
// know: it could corrupt the queues.
type UnknownScriptError struct{ SHA string }

func (e *UnknownScriptError) Error() string {
	return fmt.Sprintf("asynqx: asynq sent script %s, which is none of version %s; build Tidegate with that version", e.SHA, AsynqVersion)
}
