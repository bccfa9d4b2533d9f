# cmake -DLIBRARY=libaliquot.so -DPOM=pom.xml -DOUTPUT=VERSION -P version.cmake
# Writes the name of the library's directory on a node and in containers: project version, a dash, and the first 12 hex
# digits of the library's SHA-256. Different libraries therefore have different names.
file(READ ${POM} pom)
# The first <version> is the parent's, which is the version of the project.
string(REGEX MATCH "<version>([^<]+)</version>" _ "${pom}")
if(NOT CMAKE_MATCH_1)
  message(FATAL_ERROR "${POM} contains no <version>")
endif()
set(version ${CMAKE_MATCH_1})
file(SHA256 ${LIBRARY} hash)
string(SUBSTRING ${hash} 0 12 hash)
file(WRITE ${OUTPUT} "${version}-${hash}\n")
