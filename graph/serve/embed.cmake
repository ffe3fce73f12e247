# cmake -DFROM=FILE -DTO=FILE -P embed.cmake: the bytes of a file as members of a C array.
file(READ ${FROM} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
file(WRITE ${TO} "${bytes}\n")
