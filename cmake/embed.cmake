# Writes OUTPUT.cpp with the text of INPUT as NAMESPACE::FUNCTION(), which HEADER declares. String literals have a length
# limit in some compilers, so the bytes go in as numbers.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"${HEADER}\"\n
namespace ${NAMESPACE} {\n
namespace {
const unsigned char bytes[] = {
    ${bytes}};
}  // namespace\n
std::string_view ${FUNCTION}() { return {reinterpret_cast<const char*>(bytes), sizeof(bytes)}; }\n
}  // namespace ${NAMESPACE}\n")
