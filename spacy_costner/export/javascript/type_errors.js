/**
 * Errors for arguments of unexpected types.
 */

/** The maximum number of characters of a string to show. */
const MAX_SHOWN = 40;

/**
 * Creates the error for an argument of the wrong type.
 * @param {string} name The name of the parameter or option.
 * @param {string} expected The expected type, e.g. "a string".
 * @param {unknown} value The argument.
 * @returns {TypeError}
 */
export function typeError(name, expected, value) {
  return new TypeError(`${name}: expected ${expected}, got ${describe(value)}`);
}

/**
 * Returns a short description of a value for error messages: the value of a primitive, or the class
 * of an object.
 * @param {unknown} value
 * @returns {string}
 */
export function describe(value) {
  if (typeof value === "string") {
    const shown = JSON.stringify(value.slice(0, MAX_SHOWN));
    return value.length > MAX_SHOWN ? `${shown}…` : shown;
  }
  if (typeof value === "function") {
    return "a function";
  }
  if (typeof value === "object" && value !== null) {
    return `an instance of ${value.constructor?.name ?? "Object"}`;
  }
  return String(value);
}

/**
 * Checks that an argument is an object that maps names to values.
 * @param {string} name The name of the parameter or option.
 * @param {unknown} value
 * @throws {TypeError} If it isn't.
 */
export function checkObject(name, value) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw typeError(name, "an object", value);
  }
}
