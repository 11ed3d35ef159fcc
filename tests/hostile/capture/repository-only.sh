# expect: empty
# Nothing but the workspace's own repository, which is no part of its content.
git commit -q --allow-empty -m nothing
echo payload > .git/payload
