"""What a plan of training is told as: `figures` its choice, its time and what it leaves, `command` how it is launched,
`own_trainer` the same where a library brings its own trainer. No torch."""
