// A non-owning reference to a function.
#pragma once

namespace costner {

template <class Signature>
class FunctionRef;

// A function or lambda as an argument. A function with such a parameter is compiled only once, while a template would
// be compiled for each lambda. The reference must not outlive the function.
template <class Result, class... Arguments>
class FunctionRef<Result(Arguments...)> {
  public:
    template <class Function>
    FunctionRef(const Function& function)
        : function_(&function), call_([](const void* function, Arguments... arguments) -> Result {
              return (*static_cast<const Function*>(function))(arguments...);
          }) {}

    Result operator()(Arguments... arguments) const { return call_(function_, arguments...); }

  private:
    const void* function_;
    Result (*call_)(const void*, Arguments...);
};

}  // namespace costner
