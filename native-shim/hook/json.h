/*
 * Reads JSON (RFC 8259) that a container runtime has written, in which strings are of tenants: annotations, arguments,
 * environment. json_parse checks the whole text once; the other functions walk over a text that it has accepted, in
 * place and without memory of their own. Not checked: that the text is UTF-8.
 */
#ifndef ALIQUOT_HOOK_JSON_H
#define ALIQUOT_HOOK_JSON_H

#include <stdbool.h>
#include <stddef.h>

#define JSON_DEPTH_MAX 64 /* arrays and objects in each other; a config.json has 8 */
#define JSON_KEY_MAX 256  /* bytes of a key that json_member finds, with its NUL */

/* The text of a value, or the rest of an array or object. */
struct json {
    const char *at, *end;
};

/* False: the text is not one JSON value, or deeper than JSON_DEPTH_MAX. */
bool json_parse(const char *text, size_t length, struct json *value);

/* Finds a member of an object. False: it has none of this name or several, or is no object. */
bool json_member(struct json object, const char *name, struct json *value);

/* Steps through an array, from *rest, which begins as the array and is changed. False: at its end, or it is none. */
bool json_next(struct json *rest, struct json *element);

/* Decodes a string. False, and the text is empty: the value is none, needs more than size bytes with its NUL, or has an
   escape \uXXXX that is NUL or beyond ASCII; runtimes write other characters as they are, except U+2028 and U+2029. */
bool json_string(struct json value, char *text, size_t size);

#endif
