# cmake -DLIBRARY=libaliquot.so -DPOM=pom.xml -DOUTPUT=VERSION -P version.cmake
# Writes the name of the library's folder on a node and in containers: project version, a dash, and the first 12 hex
# digits of the library's SHA-256, so that different libraries never meet under one name.
file(READ ${POM} pom)
string(REGEX MATCH "<version>([^<]+)</version>" _ "${pom}") # the first is the parent's, the project's own
if(NOT CMAKE_MATCH_1)
  message(FATAL_ERROR "${POM} names no <version>")
endif()
set(version ${CMAKE_MATCH_1})
file(SHA256 ${LIBRARY} hash)
string(SUBSTRING ${hash} 0 12 hash)
file(WRITE ${OUTPUT} "${version}-${hash}\n")
