# Blanks comments and what is inside quotes, so that searches see code only. Lines stay lines.
{
    out = ""
    n = length($0)
    if (!continues) quote = ""
    for (i = 1; i <= n; i++) {
        c = substr($0, i, 1)
        two = substr($0, i, 2)
        if (comment) {
            if (two == "*/") {
                comment = 0
                i++
            }
        } else if (quote != "") {
            if (c == "\\") {
                i++
            } else if (c == quote) {
                quote = ""
                out = out c
            }
        } else if (two == "/*") {
            comment = 1
            i++
        } else if (two == "//") {
            break
        } else {
            if (c == "\"" || c == "'") quote = c
            out = out c
        }
    }
    continues = substr($0, n, 1) == "\\"
    print out
}
