package models

import (
	"context"
	"testing"

	"agentcli/internal/setting"
	"agentcli/internal/setting/settingtest"
)

func TestASettingOfAJudgeWithoutAJudgeIsNamed(t *testing.T) {
	for name, o := range map[setting.Name]JudgeOptions{
		"Judge.Rubric":   {Rubric: "quality"},
		"Judge.Votes":    {Votes: 3},
		"Judge.PriceIn":  {PriceIn: 1},
		"Judge.PriceOut": {PriceOut: -1},
	} {
		if _, err := OpenJudge(context.Background(), o, 1, nil); !settingtest.Names(err, name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if j, err := OpenJudge(context.Background(), JudgeOptions{}, 1, nil); j != nil || err != nil {
		t.Errorf("no judge: %v, %v", j, err)
	}
}
