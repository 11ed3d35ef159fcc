# expect: coverage .gitmodules
# A link that git refuses to follow, and to apply.
ln -s /etc/passwd .gitmodules
