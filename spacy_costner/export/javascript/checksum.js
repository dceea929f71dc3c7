/**
 * CRC-32, the checksum of gzip and PNG, which `zlib.crc32` in Python computes.
 *
 * It finds all damage within 32 bits, and other damage but for one case in 2^32. It doesn't protect
 * against deliberate changes. The digests of `crypto.subtle` do, but browsers don't have them on
 * pages that a server sends without encryption.
 */

/** The polynomial, its lowest bit first. */
const POLYNOMIAL = 0xedb88320;

/** The remainder of each byte. */
const REMAINDERS = Int32Array.from({ length: 256 }, (_, byte) => remainderOf(byte));

/**
 * Divides a byte, with 32 zeros after it, by the polynomial.
 * @param {number} byte
 * @returns {number}
 */
function remainderOf(byte) {
  let remainder = byte;
  for (let bit = 0; bit < 8; bit++) {
    const isOdd = remainder & 1;
    remainder >>>= 1;
    if (isOdd) {
      remainder ^= POLYNOMIAL;
    }
  }
  return remainder;
}

/**
 * Returns the CRC-32 of some bytes.
 * @param {Uint8Array} bytes
 * @returns {number} A whole number below 2^32.
 */
export function crc32(bytes) {
  let remainder = -1; // 32 ones, so that zeros at the beginning count
  for (let i = 0; i < bytes.length; i++) {
    remainder = (remainder >>> 8) ^ REMAINDERS[(remainder ^ bytes[i]) & 0xff];
  }
  return ~remainder >>> 0;
}
