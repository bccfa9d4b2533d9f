package io.aliquot.scheduler.admission;

import java.util.ArrayList;
import java.util.List;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;
import tools.jackson.databind.node.StringNode;

/**
 * An object in the JSON of a pod. Each change is made in the tree, so that later steps read it, and recorded as an
 * operation of a JSON Patch (RFC 6902), so that no second tree is compared with the first. What is equal already is not
 * recorded.
 *
 * @param path the JSON pointer of the object
 * @param operations of the whole pod
 */
record EditedObject(ObjectNode tree, String path, ArrayNode operations) {
    /** The API server copies the array for each element that a patch removes. */
    private static final int MOST_DUPLICATES = 100;

    static EditedObject of(ObjectNode pod) {
        return new EditedObject(pod, "", JsonNodeFactory.instance.arrayNode());
    }

    void put(String field, String text) {
        put(field, StringNode.valueOf(text));
    }

    void put(String field, JsonNode value) {
        if (!value.equals(tree.get(field))) {
            // A copy, since a later change of the value has an operation of its own.
            operation("add", pointer(field)).set("value", value.deepCopy());
            tree.set(field, value);
        }
    }

    void remove(String field) {
        if (tree.has(field)) {
            tree.remove(field);
            operation("remove", pointer(field));
        }
    }

    /** The field's object; added if it is absent. */
    EditedObject object(String field) {
        ObjectNode object = JsonTree.object(tree, field).orElseGet(() -> {
            put(field, tree.objectNode());
            return (ObjectNode) tree.get(field);
        });
        return new EditedObject(object, pointer(field), operations);
    }

    /** The elements of the field's array; none if it is absent. */
    List<EditedObject> objects(String field) {
        var objects = new ArrayList<EditedObject>();
        for (ObjectNode element : JsonTree.objects(tree, field)) {
            objects.add(new EditedObject(element, pointer(field) + "/" + objects.size(), operations));
        }
        return objects;
    }

    /** Appends an element to the field's array, which is added if it is absent. */
    void append(String field, ObjectNode element) {
        ArrayNode array = JsonTree.array(tree, field).orElseGet(tree::arrayNode);
        if (array.isEmpty()) {
            put(field, tree.arrayNode().add(element));
        } else {
            array.add(element);
            operation("add", pointer(field) + "/-").set("value", element.deepCopy());
        }
    }

    /** Replaces the first element with the same value of {@code key} and removes the others. */
    void replaceOrAppend(String field, String key, ObjectNode element) {
        ArrayNode array = JsonTree.array(tree, field).orElseGet(tree::arrayNode);
        var found = new ArrayList<Integer>();
        for (int i = 0; i < array.size(); i++) {
            if (element.get(key).equals(array.get(i).get(key))) {
                found.add(i);
            }
        }
        if (found.isEmpty()) {
            append(field, element);
            return;
        }
        if (found.size() > MOST_DUPLICATES) {
            throw new DeniedException(pointer(field) + ": write the element with the " + key + " "
                    + element.get(key).asString("") + " once instead of " + found.size() + " times");
        }
        // From the end, so that the other indexes stay the same.
        for (int index : found.reversed().subList(0, found.size() - 1)) {
            array.remove(index);
            operation("remove", pointer(field) + "/" + index);
        }
        if (!element.equals(array.get(found.get(0)))) {
            array.set(found.get(0), element);
            operation("replace", pointer(field) + "/" + found.get(0)).set("value", element.deepCopy());
        }
    }

    private ObjectNode operation(String operation, String pointer) {
        return operations.addObject().put("op", operation).put("path", pointer);
    }

    private String pointer(String field) {
        return path + "/" + field.replace("~", "~0").replace("/", "~1");
    }
}
