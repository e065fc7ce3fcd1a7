// Calls of what a script left to be called later.

const AsyncFunction = (async () => {}).constructor;
let failed;

// Says what is to be done with an error that nobody can catch.
export function onFailure(action) {
  failed = action;
}

// Nobody but us has the promise that an asynchronous function gives here.
export function call(action, self, given) {
  const made = action.apply(self, given);
  if (action instanceof AsyncFunction) made.then(undefined, failed);
}

export function checked(action) {
  if (typeof action !== "function") throw new TypeError('The "callback" argument must be of type function.');
  return action;
}
