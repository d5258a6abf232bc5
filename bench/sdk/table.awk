# The rows of docs/sdks.md, from two files of fields between tabs: the packages that are installed (language, package,
# version), and what the suites proved with them (language, packages, API, feature).
BEGIN {
	FS = "\t"
	columns = split("streaming,tools,structured output,embeddings,errors,retries,cancel", column, ",")
	others = split("async,custom tools,documents,logprobs,models,thinking,token counting,tool runner", other, ",")
	for (i = 1; i <= columns; i++) known[column[i]]
	for (i = 1; i <= others; i++) known[other[i]]
}
FNR == NR {
	version[$1, $2] = $3
	next
}
!($4 in known) {
	print "table.awk: no place for the feature " $4 > "/dev/stderr"
	exit 1
}
{
	rows[$1 FS $2 FS $3]
	proved[$1 FS $2 FS $3, $4]
}
END {
	for (row in rows) {
		split(row, of, FS)
		count = split(of[2], packages, ", ")
		names = versions = more = ""
		for (i = 1; i <= count; i++) {
			names = names (i > 1 ? ", " : "") "`" packages[i] "`"
			versions = versions (i > 1 ? ", " : "") version[of[1], packages[i]]
		}
		line = "| " of[1] " | " names " | " versions " | " of[3] " |"
		for (i = 1; i <= columns; i++) line = line ((row, column[i]) in proved ? " yes |" : " |")
		for (i = 1; i <= others; i++) if ((row, other[i]) in proved) more = more (more == "" ? "" : ", ") other[i]
		print line (more == "" ? " |" : " " more " |")
	}
}
