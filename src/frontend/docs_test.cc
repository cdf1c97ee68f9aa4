// /openapi.json and /docs.
#include <gmock/gmock.h>

#include "frontend/handlers.h"
#include "frontend/routes.h"
#include "frontend/testing/frontend_fixture.h"

namespace aerie::frontend {
namespace {

using testing::HasSubstr;

class DocsTest : public FrontendFixture {};

TEST_F(DocsTest, TheDocumentNamesEveryRoute) {
    start([](const Request&) { return says("x"); });
    const Json document = json(get("/openapi.json"));
    const std::string page = get("/docs").body;
    for (const Route& route : routes()) {
        std::string method = route.method;
        for (char& c : method) c = static_cast<char>(std::tolower(c));
        const Json& operation = document["paths"][route.path][method];
        EXPECT_EQ(operation["summary"], Json(route.summary)) << route.path;
        EXPECT_EQ(operation["responses"].find("401") != nullptr, route.auth != Auth::kOpen);
        EXPECT_THAT(page, HasSubstr(route.path));
    }
}

}  // namespace
}  // namespace aerie::frontend
