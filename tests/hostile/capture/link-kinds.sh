# expect: patch
# A file becomes a link, a link a file, a directory a link and a link a directory.
rm code.py && ln -s /etc/passwd code.py
rm link && echo file > link
rm -r package && ln -s .. package
rm dangling && mkdir dangling && echo inside > dangling/file
