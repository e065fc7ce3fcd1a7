// A script that ends by calling its main function: what that gives is waited for, so that a promise
// that is rejected ends the program as an error, as it does in node.

const LAST = /(^|[;}\n])([ \t]*)((?:[A-Za-z_$][\w$]*\.)*[A-Za-z_$][\w$]*\([^()'"`/]*\))[ \t]*;?\s*$/;

export function awaited(source) {
  const found = LAST.exec(source);
  if (!found || /^(if|for|while|switch|catch|function|super|import|require)\(/.test(found[3])) return source;
  const at = found.index + found[1].length;
  return `${source.slice(0, at)}${found[2]}await ${found[3]};\n`;
}
