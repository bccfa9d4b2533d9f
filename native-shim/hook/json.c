#include "json.h"

#include <stdlib.h>
#include <string.h>

static bool skip_value(struct json *rest, unsigned depth);

static void skip_space(struct json *rest) {
    while (rest->at < rest->end && (*rest->at == ' ' || *rest->at == '\t' || *rest->at == '\n' || *rest->at == '\r')) {
        rest->at++;
    }
}

static bool skip_one_of(struct json *rest, const char *characters) {
    bool found = rest->at < rest->end && *rest->at != 0 && strchr(characters, *rest->at) != NULL;
    rest->at += found;
    return found;
}

static bool skip_token(struct json *rest, const char *character) {
    skip_space(rest);
    return skip_one_of(rest, character);
}

static bool skip_word(struct json *rest, const char *word) {
    size_t length = strlen(word);
    bool found = (size_t)(rest->end - rest->at) >= length && memcmp(rest->at, word, length) == 0;
    rest->at += found ? length : 0;
    return found;
}

static bool skip_escape(struct json *rest) {
    if (!skip_one_of(rest, "u")) {
        return skip_one_of(rest, "\"\\/bfnrt");
    }
    for (int i = 0; i < 4; i++) {
        if (!skip_one_of(rest, "0123456789abcdefABCDEF")) {
            return false;
        }
    }
    return true;
}

static bool skip_string(struct json *rest) {
    if (!skip_one_of(rest, "\"")) {
        return false;
    }
    while (rest->at < rest->end && (unsigned char)*rest->at >= ' ') {
        char c = *rest->at++;
        if (c == '"') {
            return true;
        }
        if (c == '\\' && !skip_escape(rest)) {
            return false;
        }
    }
    return false;
}

static bool skip_digits(struct json *rest) {
    const char *start = rest->at;
    while (skip_one_of(rest, "0123456789")) {
    }
    return rest->at > start;
}

static bool skip_number(struct json *rest) {
    skip_one_of(rest, "-");
    if (!skip_one_of(rest, "0") && !skip_digits(rest)) {
        return false;
    }
    if (skip_one_of(rest, ".") && !skip_digits(rest)) {
        return false;
    }
    if (skip_one_of(rest, "eE")) {
        skip_one_of(rest, "+-");
        return skip_digits(rest);
    }
    return true;
}

static bool skip_key(struct json *rest) {
    skip_space(rest);
    return skip_string(rest) && skip_token(rest, ":");
}

/* Skips what follows the bracket of an array or the brace of an object. */
static bool skip_elements(struct json *rest, bool object, unsigned depth) {
    const char *close = object ? "}" : "]";
    if (skip_token(rest, close)) {
        return true;
    }
    do {
        if ((object && !skip_key(rest)) || !skip_value(rest, depth)) {
            return false;
        }
    } while (skip_token(rest, ","));
    return skip_token(rest, close);
}

/* Recurses at most depth times. */
static bool skip_value(struct json *rest, unsigned depth) {
    skip_space(rest);
    bool object = skip_one_of(rest, "{");
    if (object || skip_one_of(rest, "[")) {
        return depth > 0 && skip_elements(rest, object, depth - 1);
    }
    if (rest->at < rest->end && *rest->at == '"') {
        return skip_string(rest);
    }
    return skip_word(rest, "true") || skip_word(rest, "false") || skip_word(rest, "null") || skip_number(rest);
}

/* Cuts the next value off. */
static bool cut_value(struct json *rest, struct json *value) {
    skip_space(rest);
    value->at = rest->at;
    bool valid = skip_value(rest, JSON_DEPTH_MAX);
    value->end = rest->at;
    return valid;
}

bool json_parse(const char *text, size_t length, struct json *value) {
    struct json rest = {text, text + length};
    bool valid = cut_value(&rest, value);
    skip_space(&rest);
    return valid && rest.at == rest.end;
}

bool json_next(struct json *rest, struct json *element) {
    return skip_one_of(rest, "[,") && cut_value(rest, element) && (skip_space(rest), true);
}

bool json_member(struct json object, const char *name, struct json *value) {
    char decoded[JSON_KEY_MAX];
    struct json key, candidate;
    int found = 0;
    while (skip_one_of(&object, "{,") && cut_value(&object, &key) && skip_token(&object, ":") &&
           cut_value(&object, &candidate)) {
        skip_space(&object);
        if (json_string(key, decoded, sizeof decoded) && strcmp(decoded, name) == 0) {
            *value = candidate;
            found++;
        }
    }
    return found == 1;
}

/* Decodes an escape after its backslash. 0: it is no ASCII character of a C string. */
static char decode_escape(struct json *rest) {
    static const char escapes[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    char c = *rest->at++;
    if (c != 'u') {
        return meanings[strchr(escapes, c) - escapes];
    }
    char digits[5] = {0};
    memcpy(digits, rest->at, 4);
    rest->at += 4;
    unsigned long code = strtoul(digits, NULL, 16);
    return code < 0x80 ? (char)code : 0;
}

bool json_string(struct json value, char *text, size_t size) {
    size_t length = 0;
    text[0] = 0;
    if (!skip_one_of(&value, "\"")) {
        return false;
    }
    value.end--; /* the closing quotation mark */
    while (value.at < value.end) {
        char c = *value.at++;
        c = c == '\\' ? decode_escape(&value) : c;
        if (c == 0 || length + 1 >= size) {
            text[0] = 0;
            return false;
        }
        text[length++] = c;
    }
    text[length] = 0;
    return true;
}
