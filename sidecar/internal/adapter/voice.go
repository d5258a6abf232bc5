package adapter

// Voices are those who speak in a conversation, by their roles, for servers without a member for their names.
type Voices struct {
	roles []voices
	room  [4]voices // for the roles there are, so that they cost no memory of their own
}

// voices are those of one role.
type voices struct {
	role, first string
	several     bool
}

// Voice is who speaks in a message, "" where the name says no more than the role. A tool's is known from its call.
func Voice(role, name string) string {
	if name == role || role == "tool" {
		return ""
	}
	return name
}

// Meet notes who speaks in a message, "" for nobody in particular.
func (v *Voices) Meet(role, voice string) {
	for i := range v.roles {
		if r := &v.roles[i]; r.role == role {
			r.several = r.several || voice != r.first
			return
		}
	}
	if v.roles == nil {
		v.roles = v.room[:0]
	}
	v.roles = append(v.roles, voices{role: role, first: voice})
}

// Introduce is what to put before what a message says, "" for nothing. Where several speak in one role, nothing else would
// tell them apart; a name that all messages of a role have tells nothing, and many clients send one.
func (v *Voices) Introduce(role, voice string) string {
	for _, r := range v.roles {
		if r.role == role && r.several && voice != "" {
			return voice + ": "
		}
	}
	return ""
}
