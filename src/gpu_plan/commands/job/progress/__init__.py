"""What is shown on stderr while a job that must be traced is searched: lines, or a picture on a terminal.

view     what every view does
choice   which one is shown
words    a search's news as text
lines    plain lines, where stderr is no terminal
screen   a table that grows, on a terminal; wiped at the end
"""
