#include "limits/limits.h"

#include <stdio.h>
#include <string.h>

#define MEMORY_MIB_MAX (UINT64_C(1) << 24)
#define NUMBER_DIGITS_MAX 9

/* Part of the text. */
struct span {
    const char *at;
    size_t length;
};

struct parser {
    size_t line; /* the first line is 1 */
    char *error;
};

/* Settings that may occur once. */
enum setting_seen { SEEN_MEMORY = 1, SEEN_CORES = 2, SEEN_POLICY = 4, SEEN_CONTEXT = 8, SEEN_EXCLUSIVE = 16 };

static bool fail_expected(const struct parser *parser, const char *what) {
    snprintf(parser->error, ALIQUOT_LIMITS_ERROR, "line %zu: expected %s", parser->line, what);
    return false;
}

static bool span_equals(struct span span, const char *text) {
    return span.length == strlen(text) && memcmp(span.at, text, span.length) == 0;
}

static bool is_key(struct span span) {
    for (size_t i = 0; i < span.length; i++) {
        char c = span.at[i];
        bool letter = c >= 'a' && c <= 'z';
        if (!letter && (i == 0 || !((c >= '0' && c <= '9') || c == '-'))) {
            return false;
        }
    }
    return span.length > 0;
}

static bool parse_number(struct span span, uint64_t least, uint64_t most, uint64_t *number) {
    if (span.length == 0 || span.length > NUMBER_DIGITS_MAX) {
        return false;
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < span.length; i++) {
        if (span.at[i] < '0' || span.at[i] > '9') {
            return false;
        }
        sum = sum * 10 + (uint64_t)(span.at[i] - '0');
    }
    *number = sum;
    return sum >= least && sum <= most;
}

static bool parse_mebibytes(struct span span, uint64_t least, uint64_t *bytes) {
    if (span.length < 2 || span.at[span.length - 2] != 'M' || span.at[span.length - 1] != 'i') {
        return false;
    }
    span.length -= 2;
    if (!parse_number(span, least, MEMORY_MIB_MAX, bytes)) {
        return false;
    }
    *bytes *= ALIQUOT_MIB;
    return true;
}

bool aliquot_uuid_parse(const char *text, size_t length, uint8_t uuid[16]) {
    if (length != 36) {
        return false;
    }
    size_t nibble = 0;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (i == 8 || i == 13 || i == 18 || i == 23) {
            if (c != '-') {
                return false;
            }
            continue;
        }
        bool digit = c >= '0' && c <= '9';
        if (!digit && !(c >= 'a' && c <= 'f')) {
            return false;
        }
        unsigned value = (unsigned)(digit ? c - '0' : c - 'a' + 10);
        uuid[nibble / 2] = (uint8_t)(nibble % 2 == 0 ? value << 4 : uuid[nibble / 2] | value);
        nibble++;
    }
    return true;
}

static bool is_first_use(unsigned *seen, enum setting_seen key) {
    bool first = (*seen & key) == 0;
    *seen |= key;
    return first;
}

static bool parse_flag(const struct parser *parser, struct span flag, struct aliquot_vgpu *vgpu, unsigned *seen) {
    if (span_equals(flag, "exclusive")) {
        vgpu->exclusive = true;
        return is_first_use(seen, SEEN_EXCLUSIVE) || fail_expected(parser, "exclusive once");
    }
    return true; /* for others, or from a newer version */
}

static bool parse_policy(struct span value, enum aliquot_policy *policy) {
    static const struct {
        const char *name;
        enum aliquot_policy policy;
    } policies[] = {
        {"fixed", ALIQUOT_POLICY_FIXED}, {"elastic", ALIQUOT_POLICY_ELASTIC}, {"none", ALIQUOT_POLICY_NONE}};
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        if (span_equals(value, policies[i].name)) {
            *policy = policies[i].policy;
            return true;
        }
    }
    return false;
}

static bool parse_setting(const struct parser *parser, struct span key, struct span value, struct aliquot_vgpu *vgpu,
                          unsigned *seen) {
    uint64_t number = 0;
    if (span_equals(key, "memory")) {
        return (is_first_use(seen, SEEN_MEMORY) && parse_mebibytes(value, 1, &vgpu->memory)) ||
               fail_expected(parser, "memory=<1 to 16777216>Mi once");
    }
    if (span_equals(key, "cores")) {
        bool valid = is_first_use(seen, SEEN_CORES) && parse_number(value, 0, 100, &number);
        vgpu->cores = (uint32_t)number;
        return valid || fail_expected(parser, "cores=<0 to 100> once");
    }
    if (span_equals(key, "policy")) {
        return (is_first_use(seen, SEEN_POLICY) && parse_policy(value, &vgpu->policy)) ||
               fail_expected(parser, "policy=fixed, elastic or none once");
    }
    if (span_equals(key, "context")) {
        return (is_first_use(seen, SEEN_CONTEXT) && parse_mebibytes(value, 0, &vgpu->context_bytes)) ||
               fail_expected(parser, "context=<0 to 16777216>Mi once");
    }
    return true; /* for others, or from a newer version */
}

static bool parse_field(const struct parser *parser, struct span field, struct aliquot_vgpu *vgpu, unsigned *seen) {
    const char *equals = memchr(field.at, '=', field.length);
    struct span key = {field.at, equals == NULL ? field.length : (size_t)(equals - field.at)};
    if (!is_key(key)) {
        return fail_expected(parser, "key=value or a flag, in lower case and without spaces at the ends of the line");
    }
    if (equals == NULL) {
        return parse_flag(parser, field, vgpu, seen);
    }
    struct span value = {equals + 1, field.length - key.length - 1};
    return parse_setting(parser, key, value, vgpu, seen);
}

/* Returns the next field. Fields are separated by one or more spaces. A space at either end of the line makes an
   empty field, which is invalid. */
static struct span next_field(struct span *rest) {
    const char *space = memchr(rest->at, ' ', rest->length);
    struct span field = {rest->at, space == NULL ? rest->length : (size_t)(space - rest->at)};
    size_t used = field.length;
    while (used < rest->length && rest->at[used] == ' ') {
        used++;
    }
    bool trailing = space != NULL && used == rest->length;
    rest->at += trailing ? used - 1 : used; /* leaves one space, which becomes the empty field */
    rest->length -= trailing ? used - 1 : used;
    return field;
}

static bool parse_line(const struct parser *parser, struct span line, struct aliquot_vgpu *vgpu) {
    static const char prefix[] = "GPU-", mig_prefix[] = "MIG-";
    size_t prefix_length = sizeof prefix - 1;
    struct span uuid = next_field(&line);
    if (uuid.length < prefix_length ||
        (memcmp(uuid.at, prefix, prefix_length) != 0 && memcmp(uuid.at, mig_prefix, prefix_length) != 0) ||
        !aliquot_uuid_parse(uuid.at + prefix_length, uuid.length - prefix_length, vgpu->uuid)) {
        return fail_expected(parser, "GPU-<UUID in lower-case hex> or MIG-<UUID> first");
    }
    unsigned seen = 0;
    while (line.length > 0) {
        struct span field = next_field(&line);
        if (!parse_field(parser, field, vgpu, &seen)) {
            return false;
        }
    }
    return ((seen & SEEN_MEMORY) != 0 && (seen & SEEN_CORES) != 0) ||
           fail_expected(parser, "memory=<MiB>Mi and cores=<percent> after the UUID");
}

bool aliquot_limits_parse(const char *text, size_t length, struct aliquot_limits *limits,
                          char error[ALIQUOT_LIMITS_ERROR]) {
    struct parser parser = {.line = 1, .error = error};
    *limits = (struct aliquot_limits){0};
    if (length > ALIQUOT_LIMITS_TEXT_MAX) {
        return fail_expected(&parser, "at most 65536 bytes in all");
    }
    for (size_t i = 0; i < length; i++) {
        if (text[i] != '\n' && (text[i] < ' ' || text[i] > '~')) {
            return fail_expected(&parser, "printable ASCII");
        }
        parser.line += text[i] == '\n';
    }
    size_t end = length > 0 && text[length - 1] == '\n' ? length - 1 : length;
    size_t start = 0;
    for (parser.line = 1; start <= end; parser.line++) {
        const char *newline = memchr(text + start, '\n', end - start);
        size_t line_length = newline == NULL ? end - start : (size_t)(newline - (text + start));
        if (limits->count == ALIQUOT_LIMITS_VGPUS_MAX) {
            return fail_expected(&parser, "at most 16 GPUs");
        }
        struct aliquot_vgpu *vgpu = &limits->vgpu[limits->count];
        if (!parse_line(&parser, (struct span){text + start, line_length}, vgpu)) {
            return false;
        }
        for (size_t i = 0; i < limits->count; i++) {
            if (memcmp(limits->vgpu[i].uuid, vgpu->uuid, sizeof vgpu->uuid) == 0) {
                return fail_expected(&parser, "each UUID once");
            }
        }
        limits->count++;
        start += line_length + 1;
    }
    return true;
}
