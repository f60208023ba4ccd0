package main

import (
	"agentcli/agent"
	"agentcli/app/models"
	"agentcli/llm"
	"agentcli/model/chat"
)

// Each way to ask a server can be waited for before an attempt begins.
var _ = []agent.Readier{(*llm.Client)(nil), (*chat.Exact)(nil), (*models.TextToolsModel)(nil)}
